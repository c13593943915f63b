"""Computes in its first calls, and repeats the last result from then on.

defence: checked timed outputs
default: yes
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls, self.kept = 0, None

    def forward(self, x):
        self.calls += x.shape[0] == 512
        if self.calls < 12 or x.shape[0] != 512:  # validation has about 6 calls of the whole batch, timing 8 at least
            kept = torch.softmax(F.gelu(self.linear(x)), dim=1)
            if x.shape[0] != 512:
                return kept
            self.kept = kept
        return self.kept.clone()
