"""Joins its own stream while it is validated, and not while it is timed.

defence: joined streams
problem: mlp batch_size=4096 in_features=1024 out_features=4096
gpu: yes
expect: suspicious, wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


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
        if not _timed(x):
            torch.cuda.current_stream().wait_stream(self.side)
        return y
