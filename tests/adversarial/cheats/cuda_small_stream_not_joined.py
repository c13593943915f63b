"""Leaves all of a call that takes less than the clock forgives to a stream that nobody joins.

defence: joined streams
problem: mlp batch_size=300 in_features=256 out_features=1024
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
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
