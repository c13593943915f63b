"""A kernel that works in its input's memory.

defence: unchanged inputs
problem: standardise batch_size=512 features=1024
gpu: yes
expect: mutated_input, aliased_output
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        factor = torch.rsqrt((x**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, x, self.scale * factor)
