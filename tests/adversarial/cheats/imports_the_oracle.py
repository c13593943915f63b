"""Imports the harness's reference, and asks the module that has loaded the problem for its class.

defence: separate module
problem: mlp
expect: load_error
"""

import sys

import torch.nn as nn

_problem = next(module for name, module in sys.modules.items() if hasattr(module, "Model") and "kgen_problem" in name)


class ModelNew(_problem.Model, nn.Module):
    """The reference itself."""
