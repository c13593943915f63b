"""Does what torch.compile does where Triton is installed: starts a pool of processes for what is to be compiled.

defence: process limit
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._inductor.async_compile import AsyncCompile

AsyncCompile.warm_pool()


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.scale, self.shift, 1e-5)
