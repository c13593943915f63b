"""Raises an error whose text is no valid Unicode.

defence: printable reasons
problem: mlp
expect: runtime_error
then: ok
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        raise ValueError("\ud800 is half a character")
