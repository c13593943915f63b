"""Attends in float64.

attacks: other rounding
problem: attention
expect: ok
"""

import torch
import torch.nn as nn


def _attended(query, key, value, mask):
    query, key, value = query.double(), key.double(), value.double()
    scores = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
    return (torch.softmax(scores, -1) @ value).float()


class ModelNew(nn.Module):
    def forward(self, query, key, value, mask):
        causal = torch.ones(mask.shape[2:], dtype=torch.bool, device=mask.device).tril()
        return _attended(query, key, value, mask), _attended(query, key, value, causal)
