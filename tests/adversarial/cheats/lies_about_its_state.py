"""Overrides `state_dict` and `named_buffers` to show other tensors than those that it uses.

defence: state after the call
problem: moving_average
expect: wrong_state, suspicious, wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("average", torch.zeros(in_features))
        self.register_buffer("steps", torch.tensor(0))
        self.shown = None

    def named_buffers(self, *args, **kwargs):
        own = dict(super().named_buffers(*args, **kwargs))
        shown, self.shown = self.shown, None
        return iter((own if shown is None else shown).items())

    def forward(self, x):
        average = 0.9 * self.average + 0.1 * x.mean(0)
        self.shown = {"average": average, "steps": self.steps + 1}
        return torch.relu(self.linear(x - average))
