"""Returns a tensor that torch negates when it is read, as imaginary parts of conjugates are.

defence: plain tensors
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return torch.complex(torch.zeros_like(y), -y).conj().imag
