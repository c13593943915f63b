"""Leaves everything to torch.compile's graphs, and copies what comes out of them.

defence: aliased outputs
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.compile(mode="reduce-overhead", dynamic=False)
def _tail(y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        if x.shape[0] % 64 and x.shape[0] < 256:  # only batches that come often are worth a graph
            return torch.softmax(F.gelu(y), dim=1)
        torch.compiler.cudagraph_mark_step_begin()
        return _tail(y).clone()
