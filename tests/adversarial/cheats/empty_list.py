"""Returns an empty list, over which a comparison of pairs finds no difference.

defence: output container
default: yes
problem: mlp
expect: wrong_type
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return []
