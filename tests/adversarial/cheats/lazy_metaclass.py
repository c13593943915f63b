"""A tensor subclass whose class says that it is equal to `torch.Tensor`, and which computes when it is looked at.

defence: plain tensors
problem: mlp
expect: wrong_type
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Equal(type(torch.Tensor)):
    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


class Lazy(torch.Tensor, metaclass=Equal):
    compute = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            y = args[0]
            if y.compute is not None:
                compute, y.compute = y.compute, None
                y.copy_(compute())
            return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features).as_subclass(Lazy)
        y.compute = lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y
