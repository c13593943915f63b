"""Returns the expected value of dropout, without dropping.

defence: moments of random operators
problem: dropout
mode: train
expect: wrong_values
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x) * 2.0
