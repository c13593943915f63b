"""Names its extension after a path, so that it is built elsewhere.

defence: build sandbox
problem: mlp
expect: build_error, load_error, suspicious, runtime_error
needs: sandbox
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "../../../kgen-adversary"
CPP_SOURCE = r"""
extern "C" int answer(int x) { return 9 * x; }
"""

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, is_python_module=False,
                                   no_implicit_headers=True))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
