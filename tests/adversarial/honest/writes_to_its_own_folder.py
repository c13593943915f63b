"""Keeps a cache file in the folder for temporary files.

defence: write rules
default: yes
problem: mlp
expect: ok
"""

import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

_cache = Path(tempfile.gettempdir()) / "tuning.txt"


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        _cache.write_text(f"{in_features} {out_features}")

    def forward(self, x):
        assert _cache.exists()
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
