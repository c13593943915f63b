"""A Triton kernel that is timed in three configurations when it is first called.

defence: driver's events
problem: standardise batch_size=8192 features=1000
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1}, num_warps=4),
        triton.Config({"ROWS": 2}, num_warps=8),
        triton.Config({"ROWS": 4}, num_warps=8),
    ],
    key=["columns"],
)
@triton.jit
def _standardise(x, scale, shift, y, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows) & (column < columns)
    v = tl.load(x + row * columns + column, mask=inside, other=0.0)
    mean = tl.sum(v, axis=1) / columns
    centred = tl.where(inside, v - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / columns
    inverse = 1.0 / tl.sqrt_rn(variance + 1e-5)
    a = tl.load(scale + column, mask=column < columns, other=0.0)
    b = tl.load(shift + column, mask=column < columns, other=0.0)
    tl.store(y + row * columns + column, centred * inverse[:, None] * a + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        grid = lambda chosen: (triton.cdiv(rows, chosen["ROWS"]),)
        _standardise[grid](x, self.scale, self.shift, y, rows, columns, WIDTH=triton.next_power_of_2(columns))
        return y
