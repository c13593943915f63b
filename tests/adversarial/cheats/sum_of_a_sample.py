"""Takes the mean of every other row: close by the law of large numbers.

defence: reference error
problem: squared_error
expect: wrong_values
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return ((x[::2] - target[::2]) ** 2).mean()
