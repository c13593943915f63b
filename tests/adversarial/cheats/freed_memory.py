"""Returns freshly allocated memory, in which the last result may still lie.

defence: poisoned memory
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: wrong_values, suspicious, nondeterministic
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 2:
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        return torch.empty(x.shape[0], self.linear.out_features)
