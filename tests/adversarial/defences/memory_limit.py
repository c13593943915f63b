"""A candidate's memory, with that of all that it starts, is limited."""


# %% cheat: memory_in_files
# problem: mlp; expect: out_of_memory, runtime_error, crashed, suspicious; then: ok; default: yes
"""Fills files in memory, which no limit of an address space counts."""

import os


_files = []


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        for _ in range(36):
            fd = os.memfd_create("kgen-adversary")
            os.posix_fallocate(fd, 0, 100 << 20)
            _files.append(fd)


# %% cheat: cuda_memory_filled
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: out_of_memory; then: ok; default: yes
"""Takes all the memory of the device."""

class ModelNew(Honest):
    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 30, device=x.device))


# %% cheat: memory_at_once
# problem: mlp; expect: out_of_memory
"""Asks for more memory than there is."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.ones(1 << 42)


# %% cheat: memory_bit_by_bit
# problem: mlp; seconds: 20; expect: out_of_memory; then: ok
"""Asks for memory until there is none."""

class ModelNew(Honest):
    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 26))


# %% cheat: memory_of_children
# problem: mlp; expect: out_of_memory, runtime_error, load_error, crashed, suspicious; then: ok
"""Has several children, each of which keeps within the limit, fill memory together."""

import os
import time


def _child():
    read, write = os.pipe()
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20)) * 900
        os.write(write, kept[:1])
        time.sleep(1000)
    os.close(write)
    return os.read(read, 1)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.grown = [_child() for _ in range(4)]

    def forward(self, x):
        if b"" in self.grown:
            raise MemoryError
        return super().forward(x)


# %% cheat: cuda_memory_filled_behind_torch
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: out_of_memory, runtime_error, suspicious, crashed; then: ok
"""Takes all the memory of the device by `cudaMalloc`, which torch's limit does not count."""

import ctypes


_runtime = ctypes.CDLL(None)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.filled = False

    def forward(self, x):
        address = ctypes.c_void_p()
        while not self.filled:
            self.filled = _runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 30)) != 0
        return super().forward(x)
