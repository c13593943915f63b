"""Sends the kill signal to every process that it may, and then to itself.

defence: process namespace
problem: mlp
expect: crashed, out_of_memory, runtime_error, suspicious
then: ok
needs: sandbox
"""

import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)
