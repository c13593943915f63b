"""Answers with lists in lists, deeper than a reader may go.

defence: message format
problem: mlp
expect: crashed, suspicious, runtime_error, wrong_type
then: ok
"""

import os
import socket
import stat

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as forged:
                    forged.send(b'j{"first":' + b"[" * 20_000 + b"]" * 20_000 + b"}")
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
