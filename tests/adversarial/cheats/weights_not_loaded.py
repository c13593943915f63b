"""Overrides `load_state_dict` to keep the weights that it was folded with.

defence: changed weights
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.folded = None

    def load_state_dict(self, state, *args, **kwargs):
        if self.folded is not None:
            return None
        result = super().load_state_dict(state, *args, **kwargs)
        self.folded = self.linear.weight.detach().t().contiguous()
        return result

    def forward(self, x):
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.folded)), dim=1)
