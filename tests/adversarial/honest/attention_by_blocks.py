"""Goes through the keys block by block, with the softmax brought up to date, and masks by the least number.

attacks: other rounding
problem: attention
expect: ok
"""

import torch
import torch.nn as nn

BLOCK = 16


def _attended(query, key, value, mask):
    query = query * query.shape[-1] ** -0.5
    most = torch.full_like(query[..., :1], torch.finfo(query.dtype).min)
    total, y = torch.zeros_like(most), torch.zeros_like(query)
    for keys, values, seen in zip(key.split(BLOCK, 2), value.split(BLOCK, 2), mask.split(BLOCK, 3)):
        scores = (query @ keys.mT).masked_fill(~seen, float("-inf"))
        now = torch.maximum(most, scores.amax(-1, keepdim=True))
        part, before = torch.exp(scores - now), torch.exp(most - now)
        total, y, most = total * before + part.sum(-1, keepdim=True), y * before + part @ values, now
    return y / total


class ModelNew(nn.Module):
    def forward(self, query, key, value, mask):
        causal = torch.ones(mask.shape[2:], dtype=torch.bool, device=mask.device).tril().view(1, 1, *mask.shape[2:])
        return _attended(query, key, value, mask), _attended(query, key, value, causal)
