"""Has no scale at all, so that its state dict does not fit and the weights are as constructed.

It is right for weights as they are made, which is all that KernelBench asks for: the label says so.

defence: protocol label
problem: standardise
expect: ok
label: kernelbench
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
