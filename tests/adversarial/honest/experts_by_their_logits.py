"""Chooses experts before the softmax: where it makes all of them NaN, another one may come first.

defence: non-finite values
problem: experts
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts)

    def forward(self, x):
        logits, chosen = self.gate(x).topk(2)
        return torch.softmax(logits, -1), chosen
