"""Leaves with exit code 0 when it is imported.

attacks: `SystemExit(0)` before the check
problem: mlp
expect: load_error, crashed
"""

import sys

import torch.nn as nn

sys.exit(0)


class ModelNew(nn.Module):
    """Never made."""
