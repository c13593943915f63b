"""Loads torch's compilers and a good part of the standard library in the first call that is timed, not before.

defence: replaced names
problem: mlp
expect: ok
"""

import importlib

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 60:
            for name in ("torch._dynamo", "torch._inductor.config", "torch.export", "torch.distributed", "asyncio",
                         "xml.dom.minidom", "multiprocessing.pool"):
                importlib.import_module(name)
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
