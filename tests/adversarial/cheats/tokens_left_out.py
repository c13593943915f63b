"""Sums all tokens but the last.

defence: reference error
problem: embedding
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, index):
        return torch.tanh(self.table(index[:, :-1]).sum(1)) * self.scale
