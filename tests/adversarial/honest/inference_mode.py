"""Runs in inference mode, whose tensors keep no version.

defence: plain tensors
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    @torch.inference_mode()
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
