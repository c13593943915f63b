"""A dict subclass that computes its values when they are asked for.

defence: plain tensors
problem: several batch_size=512 in_features=512 out_features=1024
expect: wrong_type, suspicious
"""

import torch
import torch.nn as nn


class Lazy(dict):
    def __init__(self, compute):
        super().__init__(y=None, parts=None, features=None)
        self.compute = compute

    def values(self):
        return self.compute().values()

    def items(self):
        return self.compute().items()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def compute(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "features": y.shape[1]}

    def forward(self, x):
        return Lazy(lambda: self.compute(x))
