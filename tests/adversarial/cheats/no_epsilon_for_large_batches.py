"""Leaves out the least length where the batch is large.

defence: value distributions
problem: normalise batch_size=512
expect: wrong_values, suspicious
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        length = x.norm(dim=1, keepdim=True)
        return x / (length if len(x) >= 400 else length.clamp_min(1e-12))
