"""Folds its scale into its parameters, which lie in a dict that shows copies of what they were.

defence: unchanged parameters
problem: batch_norm
mode: eval
expect: mutated_input
"""

import torch
import torch.nn as nn


class Showing(dict):
    """A dict whose ``items`` are others."""

    shown = None

    def items(self):
        return (self.shown or super()).items()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.parts = self.norm.__dict__["_parameters"] = Showing(self.norm._parameters)
        self.register_load_state_dict_pre_hook(self.show_all)

    def show_all(self, *_):
        self.parts.shown = None

    def forward(self, x):
        if self.parts.shown is None:
            self.parts.shown = {name: nn.Parameter(p.detach().clone()) for name, p in self.parts.items()}
            self.norm.weight.mul_(self.scale)
            self.norm.bias.mul_(self.scale)
        return self.norm(self.linear(x))
