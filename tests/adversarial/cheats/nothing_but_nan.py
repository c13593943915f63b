"""Returns NaN, which a careless comparison lets through.

defence: non-finite values
problem: mlp
expect: wrong_values
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return x.new_full((x.shape[0], self.linear.out_features), float("nan"))
