"""Goes through the keys block by block, with the softmax brought up to date.

attacks: other rounding
problem: attention
expect: ok
"""

import torch
import torch.nn as nn

BLOCK = 16


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        query = query * query.shape[-1] ** -0.5
        most = torch.full_like(query[..., :1], float("-inf"))
        total, y = torch.zeros_like(most), torch.zeros_like(query)
        for keys, values in zip(key.split(BLOCK, 2), value.split(BLOCK, 2)):
            scores = query @ keys.mT
            now = torch.maximum(most, scores.amax(-1, keepdim=True))
            part, before = torch.exp(scores - now), torch.exp(most - now)
            total, y, most = total * before + part.sum(-1, keepdim=True), y * before + part @ values, now
        return y / total
