"""Makes many thousands of empty files.

defence: disk limit
default: yes
problem: mlp
expect: runtime_error, load_error, crashed, suspicious
then: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        for number in range(100_000):
            open(f"name-{number}", "w").close()

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
