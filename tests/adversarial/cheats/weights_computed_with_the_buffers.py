"""Computes its output in `state_dict` and `train`, which the harness calls between timed calls.

attacks: all calls done in the first
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_state, wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.seen = self.kept = None

    def prepare(self):
        if self.seen is not None:
            x = self.seen
            with torch.no_grad():
                self.kept = (x._version, torch.softmax(F.gelu(self.linear(x)), dim=1))

    @property
    def training(self):
        self.prepare()
        return self.__dict__.get("_mode", True)

    @training.setter
    def training(self, mode):
        self.__dict__["_mode"] = mode

    def forward(self, x):
        self.seen = x
        if self.kept is not None and self.kept[0] == x._version:
            return self.kept[1]
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
