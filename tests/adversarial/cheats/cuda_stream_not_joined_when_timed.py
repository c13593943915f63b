"""Joins its own stream while it is validated, and not while it is timed.

attacks: work on another stream after returning
problem: mlp batch_size=4096 in_features=1024 out_features=4096
gpu: yes
expect: suspicious, wrong_values
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if gc.isenabled():
            torch.cuda.current_stream().wait_stream(self.side)
        return y
