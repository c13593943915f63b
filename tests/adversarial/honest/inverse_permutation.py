"""Gathers by the inverse permutation, and hands on what the problem hands on.

defence: aliased inputs
problem: permuted
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, order, hidden):
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        return torch.tanh(x[inverse]), hidden
