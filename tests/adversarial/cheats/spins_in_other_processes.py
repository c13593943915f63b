"""Starts processes that keep every core busy, and stops them while it is called.

defence: work between calls
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, runtime_error, load_error
"""

import os
import signal

import torch
import torch.nn as nn
import torch.nn.functional as F


def _spin():
    pid = os.fork()
    if pid == 0:
        while True:
            continue
    os.kill(pid, signal.SIGSTOP)
    return pid


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.others = [_spin() for _ in range(2)]

    def forward(self, x):
        for pid in self.others:
            os.kill(pid, signal.SIGSTOP)
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        for pid in self.others:
            os.kill(pid, signal.SIGCONT)
        return y
