"""Starts a thousand children that sleep, and goes on as if nothing were.

defence: process limit
default: yes
problem: mlp
expect: runtime_error, load_error, crashed, suspicious, out_of_memory
then: ok
"""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        for _ in range(1000):
            if os.fork() == 0:
                time.sleep(1000)
                os._exit(0)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
