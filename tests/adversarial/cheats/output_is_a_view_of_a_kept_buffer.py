"""Returns the first rows of a large buffer that it keeps.

defence: aliased outputs
problem: mlp
expect: aliased_output
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = torch.empty(1024, out_features)

    def forward(self, x):
        view = self.kept[: x.shape[0]]
        view.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))
        return view
