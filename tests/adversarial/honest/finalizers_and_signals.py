"""Gives its scratch back by `weakref.finalize`, asks for garbage in another thread's pool, and marks its output.

defence: audit hook
problem: mlp
expect: ok
"""

import signal
import sys
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.free = []
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        sys.setswitchinterval(0.001)

    def forward(self, x):
        scratch = self.free.pop() if self.free else torch.empty(0)
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        y.made_by = self
        weakref.finalize(y, self.free.append, scratch)
        signal.raise_signal(signal.SIGUSR1)
        return y
