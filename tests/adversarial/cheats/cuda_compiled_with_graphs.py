"""Leaves everything to torch.compile's graphs, whose output is memory that the next call writes over.

defence: aliased outputs
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: aliased_output, runtime_error, suspicious, wrong_values, nondeterministic, timeout
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
        return _tail(self.linear(x))
