"""Chooses between products and minus infinity, which most scores are; scales before it multiplies.

defence: non-finite values
problem: window_scores
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, tokens, window):
        super().__init__()
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features)
        at = torch.arange(tokens)
        self.register_buffer("outside", (at[:, None] - at[None]).abs() > window, persistent=False)

    def forward(self, x):
        keys = self.k(x) * x.shape[-1] ** -0.5
        scores = torch.einsum("btf,bsf->bts", self.q(x), keys)
        return x.sum(1) / x.shape[1], torch.where(self.outside, float("-inf"), scores)
