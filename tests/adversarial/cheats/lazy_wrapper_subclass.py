"""A wrapper subclass without storage that computes in `__torch_dispatch__`, under the name `Tensor`.

defence: plain tensors
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: wrong_type
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._pytree import tree_map


class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, job, shape):
        self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)
        self.job = job
        return self

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args = tree_map(lambda a: a.job() if isinstance(a, cls) else a, args)
        return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        shape = (x.shape[0], self.linear.out_features)
        return Tensor(lambda: torch.softmax(F.gelu(self.linear(x)), dim=1), shape)
