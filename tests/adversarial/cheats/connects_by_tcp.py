"""Asks a server on the machine for the answer.

defence: network namespace
default: yes
problem: mlp
expect: runtime_error, suspicious
needs: sandbox
"""

import json
import socket
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        home = next(p for p in Path.cwd().parents if (p / "listener.json").exists())
        port = json.loads((home / "listener.json").read_text())["tcp"]
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.send(b"what is the answer?")
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
