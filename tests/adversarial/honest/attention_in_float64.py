"""Attends in float64.

defence: reference error
problem: attention
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        query, key, value = query.double(), key.double(), value.double()
        return (torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value).float()
