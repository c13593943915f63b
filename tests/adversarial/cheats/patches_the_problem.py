"""Replaces the reference's forward in every module that has a `Model`, and returns zeros like it.

defence: separate module
problem: mlp
expect: wrong_values
"""

import sys

import torch.nn as nn


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
