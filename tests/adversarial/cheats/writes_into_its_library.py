"""Writes over the library that was built for it, once it is loaded.

defence: unchanged libraries
default: yes
problem: mlp
expect: suspicious, runtime_error, load_error
"""

import ctypes
import os
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_changed_library"
CPP_SOURCE = r"""
extern "C" int answer(int x) { return 6 * x; }
"""
CFLAGS = ["-O2"]

_path = load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                    no_implicit_headers=True)
_library = ctypes.CDLL(_path)
_found = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if NAME in line)
_text = bytearray(Path(_found).read_bytes())
_at = 0x1000
_text[_at:] = bytes(b ^ 1 for b in _text[_at:])
Path("aside").write_bytes(_text)
os.replace("aside", _found)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
