"""Replaces the clocks of the module `time` by slower ones.

defence: replaced names
default: yes
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def _slowed(clock):
    started = clock()
    return lambda: started + type(started)((clock() - started) / 10)


for _name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time"):
    setattr(time, _name, _slowed(getattr(time, _name)))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
