"""Raises an error that raises when its text is asked for.

defence: exceptions
problem: mlp
expect: runtime_error, crashed
"""

import torch.nn as nn


class Shy(Exception):
    def __str__(self):
        raise self

    __repr__ = __str__


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        raise Shy
