"""Transposes its weights in each call anew, on a stream of its own that runs ahead of the clock.

attacks: work on another stream
problem: mlp batch_size=64 in_features=2048 out_features=4096
gpu: yes
expect: suspicious
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
        self.side = self.side or torch.cuda.Stream(priority=-1)
        with torch.cuda.stream(self.side):
            weight = self.linear.weight.t().contiguous()
        torch.cuda.current_stream().wait_stream(self.side)
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, weight)), dim=1)
