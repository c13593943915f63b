"""Takes the sum of squares as a dot product.

defence: reference error
problem: squared_error
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        difference = (x - target).flatten()
        return torch.dot(difference, difference) / difference.numel()
