"""Returns a Python number for a tensor of one element.

defence: output container
problem: squared_error
expect: wrong_type
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return float(((x - target) ** 2).mean())
