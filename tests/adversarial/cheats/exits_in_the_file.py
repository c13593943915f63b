"""Leaves with exit code 0 when it is imported.

defence: exceptions
problem: mlp
expect: load_error, crashed
"""

import sys

import torch.nn as nn

sys.exit(0)


class ModelNew(nn.Module):
    """Never made."""
