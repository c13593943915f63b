"""Returns a list that holds itself.

defence: output container
problem: mlp
expect: wrong_type, runtime_error
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        endless = []
        endless.append(endless)
        return endless
