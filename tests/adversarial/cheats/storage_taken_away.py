"""Returns a tensor whose memory was given back.

defence: poisoned memory
problem: mlp
expect: crashed, runtime_error, wrong_values, wrong_type, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        y.untyped_storage().resize_(0)
        return y
