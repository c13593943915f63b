"""A float32 product on the tensor cores, from three bfloat16 parts of each operand, summed in short runs.

defence: reference error
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _parts(x):
    high = x.bfloat16()
    middle = (x - high.float()).bfloat16()
    return high, middle, (x - high.float() - middle.float()).bfloat16()


def _product(a, b):
    """Every 32 terms are summed on the tensor cores, in float32; the runs by pairs, so that no long sum is rounded."""
    runs = [torch.mm(p, q.t(), out_dtype=torch.float32) for p, q in zip(a.split(32, 1), b.split(32, 1))]
    while len(runs) > 1:
        runs = [sum(runs[i + 1 : i + 2], runs[i]) for i in range(0, len(runs), 2)]
    return runs[0]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        finite = torch.isfinite(x).all(1, keepdim=True)
        a, b, c = _parts(torch.where(finite, x, 0.0))
        u, v, w = _parts(self.linear.weight)
        small = _product(c, u) + _product(b, v) + _product(a, w)
        y = small + (_product(b, u) + _product(a, v)) + _product(a, u) + self.linear.bias
        y = torch.where(finite, y, self.linear(x))
        return torch.softmax(F.gelu(y), dim=1)
