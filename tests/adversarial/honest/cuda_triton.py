"""A kernel written in Triton for what comes behind the product; the library's operators where there is no Triton.

defence: reference error
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def _gelu_softmax(x, y, columns, WIDTH: tl.constexpr):
        row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
        v = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
        v = 0.5 * v * (1.0 + tl.math.erf(v * 0.7071067811865476))
        v = tl.where(column < columns, v, -float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        z = self.linear(x)
        if triton is None:
            return torch.softmax(F.gelu(z), dim=1)
        y = torch.empty_like(z)
        _gelu_softmax[(z.shape[0],)](z, y, z.shape[1], WIDTH=triton.next_power_of_2(z.shape[1]))
        return y
