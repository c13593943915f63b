"""Returns an object that only looks like a tensor, and computes when it is turned into one.

defence: output container
problem: mlp
expect: wrong_type
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Array:
    def __init__(self, model, x):
        self.job = model, x
        self.shape, self.dtype = (x.shape[0], model.linear.out_features), torch.float32

    def __torch_function__(self, function, types, args=(), kwargs=None):
        model, x = self.job
        return function(torch.softmax(F.gelu(model.linear(x)), dim=1), *args[1:], **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return Array(self, x)
