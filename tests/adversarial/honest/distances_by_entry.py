"""Takes the distances to a few entries at a time.

defence: reference error
problem: codebook
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.entries = nn.Parameter(torch.randn(entries, features))

    def forward(self, x):
        nearest = torch.full((x.shape[0],), float("inf"))
        for some in self.entries.split(7):
            nearest = torch.minimum(nearest, (some[:, None] - x).square().sum(-1).amin(0))
        return nearest.sqrt()
