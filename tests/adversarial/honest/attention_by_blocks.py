"""Attends block by block of keys, with a softmax that is put right as larger scores come.

All elements of a row share one error where two scores are all but equal, and where all scores are minus infinity it knows
of no mask.

defence: row and column limits
problem: attention
expect: ok
"""

import torch
import torch.nn as nn

BLOCK = 32


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q * q.shape[-1] ** -0.5
        largest = torch.full_like(q[..., :1], float("-inf"))
        weight, total = torch.zeros_like(largest), torch.zeros_like(q)
        for keys, values in zip(k.split(BLOCK, 2), v.split(BLOCK, 2)):
            scores = q @ keys.mT
            larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
            shares, kept = torch.exp(scores - larger), torch.exp(largest - larger)
            weight = weight * kept + shares.sum(-1, keepdim=True)
            total = total * kept + shares @ values
            largest = larger
        return total / weight
