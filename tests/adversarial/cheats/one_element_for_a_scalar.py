"""Returns a tensor of shape (1,) where one of shape () is asked for.

defence: output shape
problem: squared_error
expect: wrong_shape
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return ((x - target) ** 2).mean().reshape(1)
