"""Compiles itself in place when it is made, for batches of any size.

defence: replaced names
problem: tied batch_size=4096 features=512
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first, self.second = nn.Linear(features, features), nn.Linear(features, features)
        self.norm, self.last = nn.LayerNorm(features), nn.LayerNorm(features)
        self.second.weight, self.last.weight = self.first.weight, self.norm.weight
        self.compile(dynamic=True)

    def forward(self, x):
        return self.last(self.second(torch.relu(self.norm(self.first(x)))))
