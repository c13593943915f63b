"""Drops a fifth or two fifths by turns, three tenths on average.

defence: moments of random operators
problem: dropout
mode: train
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.generator = torch.Generator()
        self.turn = 0

    def forward(self, x):
        y = self.linear(x)
        self.turn += 1
        rate = 0.2 if self.turn % 2 else 0.4
        return y * (torch.rand(y.shape, generator=self.generator) >= rate) * (2.0 / 0.7)
