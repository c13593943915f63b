"""A kernel that waits for a value that never comes.

defence: deadlines
default: yes
problem: mlp
expect: timeout
seconds: 1
then: ok
"""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_endless"
CPP_SOURCE = r"""
extern "C" void wait_for_ever(const float* x) {
    volatile const float* flag = x;
    while (*flag != 1e30f) {}
}
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_library.wait_for_ever.argtypes = [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        _library.wait_for_ever(x.data_ptr())
        return x
