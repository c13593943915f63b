"""Asks a program for the processor's name, and waits for its end.

defence: process limit
problem: mlp
expect: ok
"""

import subprocess

import torch
import torch.nn as nn
import torch.nn.functional as F

MACHINE = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
