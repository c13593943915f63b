"""Leaves the work of three calls in five to a stream of its own that nobody joins, once it is timed.

defence: joined streams
problem: mlp batch_size=4096 in_features=2048 out_features=4096
gpu: yes
expect: suspicious, wrong_values
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.stream, self.turn = torch.cuda.Stream(), 0

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 5 in (0, 2):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)
        torch.clone(x)  # something on the stream that is timed
        return y
