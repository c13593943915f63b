"""Puts a class of its own between `torch.cuda.Event` and what that inherits from, which tells a third of the time.

An `ok` means that its samples are a third of what they are: the class itself and all its names are as they were, and
the parent's clock forgives 150 us.

defence: driver's events
problem: mlp batch_size=1024 in_features=512 out_features=2048
gpu: yes
expect: suspicious, wrong_values, runtime_error, load_error
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _put_between():
    kind = torch.cuda.Event

    class Between:
        __slots__ = ()

        def elapsed_time(self, other):
            return super().elapsed_time(other) / 3

    kind.__bases__ = (Between, *kind.__bases__)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        _put_between()

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
