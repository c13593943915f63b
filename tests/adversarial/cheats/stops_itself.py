"""Stops its own process, which then neither ends nor answers.

defence: deadlines
problem: mlp
expect: timeout
seconds: 1
then: ok
"""

import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
