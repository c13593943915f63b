"""Leaves another stream as the current one, on which nothing runs: the event behind the call is there at once.

defence: joined streams
problem: mlp batch_size=4096 in_features=1024 out_features=4096
gpu: yes
expect: suspicious, wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.idle = None

    def forward(self, x):
        self.idle = self.idle or torch.cuda.Stream()
        torch.cuda.set_stream(torch.cuda.default_stream())
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        torch.cuda.set_stream(self.idle)
        return y
