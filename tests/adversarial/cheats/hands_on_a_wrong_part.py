"""Hands on an input, after it wrote its result into another.

defence: unchanged inputs
problem: permuted
expect: mutated_input, aliased_output
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, order, hidden):
        x.copy_(torch.tanh(x[torch.argsort(order)]))
        return x, hidden
