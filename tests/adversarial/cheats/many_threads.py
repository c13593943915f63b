"""Starts threads until the system refuses.

defence: process limit
problem: mlp
expect: runtime_error, load_error, crashed, suspicious, out_of_memory
then: ok
"""

import threading

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        threading.stack_size(64 << 10)
        for _ in range(5000):
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
