"""Takes the root by the bits of a float and two of Newton's steps.

defence: reference error
problem: standardise
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        v = (centred**2).mean(1, keepdim=True) + 1e-5
        y = (0x5F3759DF - (v.view(torch.int32) >> 1)).view(torch.float32)
        for _ in range(2):
            y = y * (1.5 - 0.5 * v * y * y)
        return centred * y * self.scale + self.shift
