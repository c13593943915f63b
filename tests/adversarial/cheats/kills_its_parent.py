"""Sends every signal to the process that started it.

defence: process namespace
default: yes
problem: mlp
expect: crashed, runtime_error, out_of_memory, suspicious
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
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP):
            os.kill(os.getppid(), number)
        raise RuntimeError("the parent lives")
