"""Has the library use TF32 by an environment variable that it reads when it starts.

defence: global switches
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, suspicious, ok
"""

import os

os.environ["NVIDIA_TF32_OVERRIDE"] = "1"

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
