"""Raises an error that says memory ran out.

A shortage that a candidate only claims is its own error like any other.

defence: exceptions
problem: mlp
expect: runtime_error, out_of_memory
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        raise RuntimeError("CUDA error: out of memory")
