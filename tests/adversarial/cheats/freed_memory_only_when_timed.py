"""Lets every other timed call find its result in the memory that the last one gave back.

attacks: returning freed memory that holds the answer
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: wrong_values, suspicious
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if gc.isenabled() or self.calls % 4 == 0:
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        return torch.empty(x.shape[0], self.linear.out_features)
