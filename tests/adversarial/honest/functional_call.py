"""Calls its layer with its parameters handed over, by `torch.func`, over batches by `vmap`.

defence: modes and hooks
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.func.functional_call(self.linear, dict(self.linear.named_parameters()), (x,))
        return torch.func.vmap(lambda row: torch.softmax(F.gelu(row), dim=0))(y)
