"""Takes away the buffer that the harness flushes the cache with.

attacks: cache lines pinned between calls
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: suspicious
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        if not gc.isenabled():
            for found in gc.get_objects():
                if type(found).__name__ == "Subject":
                    found.flush_buffer = None
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
