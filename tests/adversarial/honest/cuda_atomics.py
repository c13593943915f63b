"""Adds partial sums by atomics, in whatever order they come: not the same bits each time, and within the gate.

defence: repeated runs
problem: squared_error
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        squares = (x - target).square_()
        sums = torch.zeros(64, dtype=torch.float64, device=x.device)
        sums.index_add_(0, torch.arange(x.shape[0], device=x.device) % 64, squares.double().sum(1))
        return (sums.sum() / squares.numel()).float()
