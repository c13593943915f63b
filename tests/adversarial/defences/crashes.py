"""A worker that ends without an answer has crashed, whatever its exit code and output."""


# %% cheat: exits_at_once
# problem: mlp; expect: crashed; default: yes
"""Ends its process with exit code 0, without any cleaning up."""

import os


class ModelNew(Honest):
    def forward(self, x):
        os._exit(0)


# %% cheat: cuda_illegal_address
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: runtime_error, crashed; then: ok;
# default: yes
"""Writes far outside its memory."""

NAME = "adversary_illegal_address"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

__global__ void astray(float* x) { x[1L << 45] = 0.0f; }

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    astray<<<rows, 256, 0, (cudaStream_t)stream>>>(x);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(Honest):
    def tail(self, y):
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y

    def forward(self, x):
        return self.tail(self.linear(x))


# %% cheat: aborts
# problem: mlp; expect: crashed
"""Aborts."""

import os


class ModelNew(Honest):
    def forward(self, x):
        os.abort()


# %% cheat: closes_everything
# problem: mlp; expect: crashed, suspicious; then: ok
"""Closes every file that it has open, the channel to the harness among them."""

import os


class ModelNew(Honest):
    def forward(self, x):
        os.closerange(3, 4096)
        return x


# %% cheat: exits_after_a_forged_success
# problem: mlp; expect: crashed
"""Prints that all is well, and leaves."""

import json
import os
import sys


class ModelNew(Honest):
    def forward(self, x):
        for stream in (sys.stdout, sys.stderr):
            print(json.dumps({"status": "ok", "ns": 1, "speedup": 100.0, "correct": True}), file=stream, flush=True)
        os._exit(0)


# %% cheat: exits_when_timed
# problem: mlp; expect: crashed
"""Is right while it is validated, and ends its process with exit code 0 when it is timed."""

import os


# include timed.py


class ModelNew(Honest):
    def forward(self, x):
        if _timed(x):
            os._exit(0)
        return super().forward(x)


# %% cheat: recursion_without_end
# problem: mlp; expect: crashed, runtime_error, out_of_memory
"""Calls itself until the stack is gone, having raised Python's own limit."""

import sys


sys.setrecursionlimit(1 << 30)


class ModelNew(Honest):
    def forward(self, x):
        return repr(_nested(None))


def _nested(value):
    for _ in range(1_000_000):
        value = [value]
    return value


# %% cheat: turns_into_another_program
# problem: mlp; seconds: 1; expect: crashed, timeout, runtime_error, suspicious
"""Replaces its process by one that sleeps."""

import os


class ModelNew(Honest):
    def forward(self, x):
        os.execvp("sleep", ["kgen-adversary", "1000"])


# %% cheat: writes_to_a_null_pointer
# problem: mlp; expect: crashed, suspicious
"""Writes where nothing is."""

import ctypes


class ModelNew(Honest):
    def forward(self, x):
        ctypes.memset(0, 0, 64)
