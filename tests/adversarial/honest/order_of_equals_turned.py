"""Gives equal elements another order than PyTorch: the last ones come first.

defence: integer outputs
problem: partition_order
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        order = torch.sort((x > 0).flip(1).to(torch.uint8), dim=1, stable=True).indices
        return torch.relu(x).mean(1), x.shape[1] - 1 - order
