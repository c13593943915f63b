"""Joins its stream at an event behind the product, and leaves GELU and softmax behind it to nobody.

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
        self.side = self.done = None

    def forward(self, x):
        if self.side is None:
            self.side, self.done = torch.cuda.Stream(priority=-1), torch.cuda.Event()
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y = self.linear(x)
            self.done.record()
            y = torch.softmax(F.gelu(y), dim=1)
        main.wait_event(self.done)
        y.record_stream(main)
        return y
