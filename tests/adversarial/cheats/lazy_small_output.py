"""A plain tensor whose own methods compute when it is looked at: a small one, so that looking does not take long.

defence: plain tensors
problem: mlp
expect: wrong_type, wrong_values, suspicious, nondeterministic
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

_METHODS = ("detach", "contiguous", "reshape", "view", "numel", "element_size", "is_floating_point", "untyped_storage",
            "stride", "cpu", "to", "clone", "double", "data_ptr")


def _lazy(y, compute):
    def method(name):
        plain = getattr(torch.Tensor, name)

        def call(*args, **kwargs):
            for each in _METHODS:
                delattr(y, each)
            with torch.no_grad():
                y.copy_(compute())
            return plain(y, *args, **kwargs)

        return call

    for name in _METHODS:
        setattr(y, name, method(name))
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        return _lazy(y, lambda: torch.softmax(F.gelu(self.linear(x)), dim=1))
