"""Hands on its input in eval mode, as the problem does, and computes in train mode.

defence: aliased inputs
problem: gate_in_training
expect: ok
mode: both
"""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.silu(x) if self.training else x
