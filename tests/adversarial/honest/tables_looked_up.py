"""Keeps the scaled table between calls, made anew when a weight changes.

defence: changed weights
problem: embedding
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.scale = nn.Parameter(torch.ones(features))
        self.made_from = self.columns = None

    def forward(self, index):
        weight = self.table.weight
        if self.made_from != (weight._version, weight.data_ptr()):
            self.made_from = weight._version, weight.data_ptr()
            self.columns = weight.detach().t().contiguous()
        return torch.tanh(self.columns[:, index].sum(2).t()) * self.scale
