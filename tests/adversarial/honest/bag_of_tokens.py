"""Uses the library's operator for bags of tokens.

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
        return F.embedding_bag(index, self.table.weight, mode="sum").tanh_().mul_(self.scale)
