"""The problem's `Model` is not in the candidate's process."""


# %% cheat: inherits_from_the_problem
# problem: mlp; expect: load_error; default: yes
"""Imports the problem's `Model` by its name, as if both lay in one namespace."""

from __main__ import Model


class ModelNew(Model):
    """The reference itself."""


# %% cheat: imports_the_oracle
# problem: mlp; expect: load_error
"""Imports the harness's reference, and asks the module that has loaded the problem for its class."""

import sys


_problem = next(module for name, module in sys.modules.items() if hasattr(module, "Model") and "kgen_problem" in name)


class ModelNew(_problem.Model, nn.Module):
    """The reference itself."""


# %% cheat: patches_the_problem
# problem: mlp; expect: wrong_values
"""Replaces the reference's forward in every module that has a `Model`, and returns zeros like it."""

import sys


def _zeros(self, x):
    return x.new_zeros(x.shape[0], self.linear.out_features)


for _module in list(sys.modules.values()):
    if isinstance(getattr(_module, "Model", None), type):
        _module.Model.forward = _zeros


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    forward = _zeros
