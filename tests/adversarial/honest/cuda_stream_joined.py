"""Does a part of the work on a stream of its own, and joins it before it returns.

defence: joined streams
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
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
        main, half = torch.cuda.current_stream(), x.shape[0] // 2
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y[:half] = torch.softmax(F.gelu(self.linear(x[:half])), dim=1)
        y[half:] = torch.softmax(F.gelu(self.linear(x[half:])), dim=1)
        main.wait_stream(self.side)
        return y
