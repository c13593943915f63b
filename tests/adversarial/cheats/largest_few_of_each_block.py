"""Takes the largest of the eight largest of each sixteenth of a row: nearly always right, of columns that are drawn alone.

defence: value distributions
problem: largest features=2048 count=16
expect: wrong_values
"""

import torch
import torch.nn as nn

BLOCKS, KEPT = 16, 8


class ModelNew(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        values, places = torch.topk(x.view(x.shape[0], BLOCKS, -1), KEPT, dim=2)
        places = places + torch.arange(BLOCKS).view(-1, 1) * (x.shape[1] // BLOCKS)
        values, order = torch.topk(values.flatten(1), self.count, dim=1)
        return torch.return_types.topk((values, places.flatten(1).gather(1, order)))
