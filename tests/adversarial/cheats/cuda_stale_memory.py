"""Returns memory from `cudaMalloc` without writing it, in the hope that an answer was there.

defence: poisoned memory
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, suspicious, nondeterministic
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.held = []

    def forward(self, x):
        torch.cuda.empty_cache()
        self.held.append(torch.empty(x.shape[0], self.linear.out_features, device=x.device))
        return torch.empty(x.shape[0], self.linear.out_features, device=x.device)
