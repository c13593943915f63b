"""Does half of the work on an urgent stream, which waits for the input and is joined by events that are made once.

defence: joined streams
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
        if self.side is None:
            self.side = torch.cuda.Stream(priority=-1)
            self.ready, self.done = torch.cuda.Event(), torch.cuda.Event()
        main, half = torch.cuda.current_stream(), x.shape[0] // 2
        self.ready.record(main)
        with torch.cuda.stream(self.side):
            self.side.wait_event(self.ready)
            first = torch.softmax(F.gelu(self.linear(x[:half])), dim=1)
            self.done.record(self.side)
        x.record_stream(self.side)
        second = torch.softmax(F.gelu(self.linear(x[half:])), dim=1)
        main.wait_event(self.done)
        first.record_stream(main)
        return torch.cat([first, second])
