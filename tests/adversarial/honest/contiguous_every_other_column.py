"""Copies an input with gaps, to have none.

defence: batch sizes
problem: every_other_column
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x.contiguous()).sum(1)
