"""Runs its steps in an event loop.

defence: network namespace
problem: mlp
expect: ok
"""

import asyncio

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    async def steps(self, x):
        h = self.linear(x)
        await asyncio.sleep(0)
        return torch.softmax(F.gelu(h), dim=1)

    def forward(self, x):
        return asyncio.run(self.steps(x))
