"""Takes all the memory of the device by `cudaMalloc`, which torch's limit does not count.

defence: memory limit
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: out_of_memory, runtime_error, suspicious, crashed
then: ok
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F

_runtime = ctypes.CDLL(None)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.filled = False

    def forward(self, x):
        address = ctypes.c_void_p()
        while not self.filled:
            self.filled = _runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 30)) != 0
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
