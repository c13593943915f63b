"""A library that starts a process as soon as it is loaded, before anybody calls it.

defence: work after the call, processes
problem: mlp
expect: suspicious, load_error, crashed
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_constructor"
CPP_SOURCE = r"""
#include <unistd.h>

__attribute__((constructor)) static void start() {
    if (fork() == 0) {
        setsid();
        execlp("bash", "bash", "-c", "exec -a kgen-adversary sleep 1000", nullptr);
        _exit(1);
    }
}

extern "C" void nothing() {}
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        _library.nothing()
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
