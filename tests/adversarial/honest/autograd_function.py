"""Computes in a `torch.autograd.Function` of its own.

defence: replaced operators
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tail(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.set_materialize_grads(False)
        return torch.softmax(F.gelu(y), dim=1)

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("forward only")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return Tail.apply(self.linear(x))
