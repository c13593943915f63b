"""Computes the first rows itself and leaves the rest to a pool, whose future nobody asks for.

defence: work after the call, threads
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F

_pool = ThreadPoolExecutor(1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.future = None

    def fill(self, x, y):
        with torch.no_grad():
            y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))

    def forward(self, x):
        if self.future is not None:
            self.future.result()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        half = x.shape[0] // 2
        self.future = _pool.submit(self.fill, x[half:], y[half:])
        self.fill(x[:half], y[:half])
        return y
