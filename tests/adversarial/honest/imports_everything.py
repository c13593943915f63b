"""Imports all of torch by name, and much else.

defence: library label
problem: mlp
expect: ok
"""

import inspect  # noqa: F401
import subprocess  # noqa: F401
import threading  # noqa: F401
from time import perf_counter  # noqa: F401

from torch import *  # noqa: F403
from torch import nn, softmax
from torch.nn.functional import *  # noqa: F403
from torch.nn.functional import gelu


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return softmax(gelu(self.linear(x)), 1)
