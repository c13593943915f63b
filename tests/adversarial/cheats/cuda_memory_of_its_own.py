"""Keeps its output in memory from `cudaMalloc`, of which torch's allocator knows nothing.

defence: aliased outputs
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: aliased_output, suspicious
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F

_runtime = ctypes.CDLL(None)


class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, shape):
        address = ctypes.c_void_p()
        if _runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * shape[0] * shape[1])):
            raise RuntimeError("cudaMalloc failed")
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address.value, False), "version": 2}


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.memory = {}

    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        if shape not in self.memory:
            self.memory[shape] = Memory(shape)
        y = torch.as_tensor(self.memory[shape], device=x.device)
        return y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))
