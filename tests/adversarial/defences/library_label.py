"""A label says that a file has no kernel of its own."""


# %% cheat: only_the_library
# problem: mlp; expect: ok; label: library; default: yes
"""Calls the same operators that the problem calls: right, no faster, and so labelled."""


# %% honest: imports_everything
# problem: mlp
"""Imports all of torch by name, and much else."""

import inspect  # noqa: F401
import subprocess  # noqa: F401
import threading  # noqa: F401
from time import perf_counter  # noqa: F401

from torch import *  # noqa: F403
from torch import nn, softmax
from torch.nn.functional import *  # noqa: F403
from torch.nn.functional import gelu


class ModelNew(Honest):
    def forward(self, x):
        return softmax(gelu(self.linear(x)), 1)


# %% honest: library_calls
# problem: mlp
"""The problem's own operators."""


# %% honest: scripted
# problem: standardise
"""Traces its body with torch's older compiler."""

import warnings


def _standardise(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * scale + shift


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _scripted = torch.jit.script(_standardise)


class ModelNew(Honest):
    def forward(self, x):
        return _scripted(x, self.scale, self.shift)


# %% honest: subclass_of_linear
# problem: mlp
"""Has its layers in a class of its own, which inherits from torch's."""

class Fused(nn.Linear):
    """A linear layer with its activation."""

    def forward(self, x):
        return F.gelu(super().forward(x))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = Fused(in_features, out_features)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        return self.softmax(self.linear(x))
