"""Takes all the memory of the device.

defence: memory limit
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: out_of_memory
then: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 30, device=x.device))
