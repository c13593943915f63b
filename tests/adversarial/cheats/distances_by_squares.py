"""Takes distances from squares and a product, of which nothing is left where a row is near an entry.

defence: value distributions
problem: codebook
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.entries = nn.Parameter(torch.randn(entries, features))

    def forward(self, x):
        squares = torch.addmm(self.entries.square().sum(1), x, self.entries.t(), alpha=-2.0)
        own = x.square().sum(1)
        nearest = (squares.amin(1) + own).clamp(min=0.0)
        return torch.where(own.isinf(), own, nearest).sqrt()
