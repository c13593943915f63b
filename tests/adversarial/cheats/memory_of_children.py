"""Has several children, each of which keeps within the limit, fill memory together.

defence: memory limit
problem: mlp
expect: out_of_memory, runtime_error, load_error, crashed, suspicious
then: ok
"""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def _child():
    read, write = os.pipe()
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20)) * 900
        os.write(write, kept[:1])
        time.sleep(1000)
    os.close(write)
    return os.read(read, 1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.grown = [_child() for _ in range(4)]

    def forward(self, x):
        if b"" in self.grown:
            raise MemoryError
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
