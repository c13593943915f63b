"""Sorts each row, and takes the first of equal elements first.

defence: integer outputs
problem: largest
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        values, places = torch.sort(x, dim=1, descending=True, stable=True)
        return torch.return_types.topk((values[:, : self.count].contiguous(), places[:, : self.count].contiguous()))
