"""Registers a function that runs when the process ends, and handles a signal.

defence: audit hook
problem: mlp
expect: ok
"""

import atexit
import signal

import torch
import torch.nn as nn
import torch.nn.functional as F

atexit.register(print, "goodbye")
signal.signal(signal.SIGUSR1, lambda *_: None)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
