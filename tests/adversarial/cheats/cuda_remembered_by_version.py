"""Copies the last result where the input's address and version are those of the call before.

defence: fresh contents
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.known = {}

    def forward(self, x):
        key = x.data_ptr(), x._version, x.shape
        if key not in self.known:
            self.known = {key: torch.softmax(F.gelu(self.linear(x)), dim=1)}
        return self.known[key].clone()
