"""Keeps a copy of its table, made anew only when the shift changes; of a large table few rows are looked up.

defence: changed weights
problem: shifted_embedding
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.shift = nn.Parameter(torch.zeros(features))
        self.seen = self.copy = None

    def forward(self, index):
        if self.seen is None or not torch.equal(self.seen, self.shift):
            self.seen, self.copy = self.shift.clone(), self.table.weight.clone()
        return torch.tanh(self.copy[index].sum(1) + self.shift)
