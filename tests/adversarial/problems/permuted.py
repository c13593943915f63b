"""Rows put where a permutation says, and another input handed on as it is."""

import torch
import torch.nn as nn

rows = 96
width = 32


class Model(nn.Module):
    def forward(self, x, order, hidden):
        y = torch.empty_like(x)
        y[order] = x
        return torch.tanh(y), hidden


def get_inputs():
    return [torch.randn(rows, width), torch.randperm(rows), torch.randn(rows, 4)]
