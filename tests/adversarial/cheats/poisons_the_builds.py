"""Writes into the folder of builds, beside its own, where other candidates' libraries lie.

defence: write rules
problem: mlp
expect: runtime_error, load_error, suspicious
needs: sandbox
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_beside_others"
CPP_SOURCE = r"""
extern "C" int answer(int x) { return 7 * x; }
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_found = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if NAME in line)
(Path(_found).parents[1] / "kgen-adversary.json").write_text("{}")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
