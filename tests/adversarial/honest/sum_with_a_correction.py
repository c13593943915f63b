"""Sums the squares in chunks, with Kahan's correction.

defence: reference error
problem: squared_error
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x, target):
        total, lost = x.new_zeros(x.shape[0]), x.new_zeros(x.shape[0])
        for k in range(0, x.shape[1], 8):
            part = (x[:, k:k + 8] - target[:, k:k + 8]).square().sum(1) - lost
            new = total + part
            lost = (new - total) - part
            total = new
        return total.sum() / x.numel()
