"""A float32 product on the tensor cores, from two float16 parts of each operand, summed in short runs.

defence: reference error
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _scaled(x):
    """Rows scaled by powers of two, in two float16 parts, and the exponents."""
    exponent = torch.frexp(x.abs().amax(1, keepdim=True).clamp(min=1e-30)).exponent
    scaled = torch.ldexp(x, 10 - exponent)
    high = scaled.half()
    return high, (scaled - high.float()).half(), exponent - 10


def _product(a, b):
    """Every 64 terms are summed by themselves, in float64."""
    parts = [(p.double() @ q.double().t()) for p, q in zip(a.split(64, 1), b.split(64, 1))]
    return sum(parts[1:], parts[0])


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        finite = torch.isfinite(x).all(1, keepdim=True)
        (a, b, e), (u, v, f) = _scaled(torch.where(finite, x, 0.0)), _scaled(self.linear.weight)
        y = _product(a, u) + _product(a, v) + _product(b, u)
        y = torch.ldexp(y, e + f.t()).float() + self.linear.bias
        y = torch.where(finite, y, self.linear(x))
        return torch.softmax(F.gelu(y), dim=1)
