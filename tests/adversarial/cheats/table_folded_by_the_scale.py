"""Keeps a copy of its table, made anew only when the scale changes; of a large table few rows are looked up.

defence: changed weights
problem: embedding vocabulary=50000
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.scale = nn.Parameter(torch.ones(features))
        self.seen = self.copy = None

    def forward(self, index):
        if self.seen is None or not torch.equal(self.seen, self.scale):
            self.seen, self.copy = self.scale.clone(), self.table.weight.clone()
        return torch.tanh(self.copy[index].sum(1)) * self.scale
