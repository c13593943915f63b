"""Looks only at the element of each weight that the harness is known to change, to see whether its fold is stale.

defence: changed weights
problem: mlp
expect: wrong_values
"""

from zlib import crc32

import torch
import torch.nn as nn
import torch.nn.functional as F


def _place(x):
    flat, middle = x.detach().view(-1), x.numel() // 2
    few = flat[max(0, middle - 2048) : middle + 2048]
    return crc32(bytes(few.view(torch.uint8).tolist())) % x.numel()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.places = self.seen = None

    def forward(self, x):
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        if self.places is None:
            self.places = [_place(p) for p in (weight, bias)]
        seen = [float(p.view(-1)[i]) for p, place in zip((weight, bias), self.places) for i in (place, 0)]
        if seen != self.seen:
            self.seen, self.packed = seen, (weight.t().contiguous(), bias.clone())
        return torch.softmax(F.gelu(torch.addmm(self.packed[1], x, self.packed[0])), dim=1)
