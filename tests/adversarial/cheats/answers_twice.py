"""Forks in forward, so that two processes answer each request.

defence: request numbers
problem: mlp
expect: suspicious, crashed, runtime_error, wrong_values, wrong_shape, wrong_type, nondeterministic, timeout
seconds: 5
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
        self.forked = False

    def forward(self, x):
        if not self.forked:
            self.forked = True
            os.fork()
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
