"""Fills its scratch folder with files, each of which keeps within the limit.

defence: disk limit
problem: mlp
expect: runtime_error, load_error, crashed, suspicious, out_of_memory
then: ok
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        for number in range(40):
            with open(f"filler-{number}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 200 << 20)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
