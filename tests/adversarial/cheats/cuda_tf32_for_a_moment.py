"""Allows TF32 for its own product, and forbids it again.

defence: global switches
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        torch.backends.cuda.matmul.allow_tf32 = True
        y = self.linear(x)
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.softmax(F.gelu(y), dim=1)
