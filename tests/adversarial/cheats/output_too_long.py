"""Returns a string of a hundred million characters.

defence: output container
problem: mlp
expect: wrong_type, runtime_error, crashed
then: ok
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return "y" * 100_000_000
