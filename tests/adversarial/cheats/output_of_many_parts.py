"""Returns a list of two hundred thousand numbers.

defence: output container
problem: mlp
expect: wrong_type, runtime_error, crashed
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return [0.5] * 200_000
