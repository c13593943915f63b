"""Counts tokens and multiplies the counts by the table.

defence: reference error
problem: embedding
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, vocabulary, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, index):
        counts = torch.zeros(len(index), self.table.num_embeddings).scatter_add_(1, index, torch.ones(index.shape))
        return torch.tanh(counts @ self.table.weight) * self.scale
