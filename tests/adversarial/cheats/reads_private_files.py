"""Reads files that only root may read.

defence: private files
default: yes
problem: mlp
expect: load_error, runtime_error, suspicious, wrong_values
needs: sandbox
"""

from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

_secrets = [Path(name).read_text() for name in ("/etc/shadow",)]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
