"""A candidate's printed output is limited."""


# %% cheat: prints_without_end
# problem: mlp; seconds: 4; expect: runtime_error, crashed, timeout; default: yes
"""Prints until nobody takes it any more."""

class ModelNew(Honest):
    def forward(self, x):
        line = "kgen: status ok " * 65536
        while True:
            print(line, flush=True)


# %% cheat: cuda_prints_without_end
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; seconds: 20;
# expect: ok, timeout, runtime_error, crashed; then: ok
"""A kernel whose threads all print."""

NAME = "adversary_prints"
CUDA_SOURCE = r"""
#include <cstdio>
#include <cuda_runtime.h>

// include reduce.cu

// include gelu_softmax.cu

__global__ void chatter() { printf("kgen: status ok, thread %d of block %d\n", threadIdx.x, blockIdx.x); }

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    chatter<<<4096, 256, 0, (cudaStream_t)stream>>>();
    gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns, true);
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


# %% honest: prints
# problem: mlp
"""Prints what it does, within reason."""

import logging
import sys
import warnings


logging.basicConfig(level=logging.INFO)
_log = logging.getLogger(__name__)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        print("constructed", in_features, out_features, "speedup: 1.0", flush=True)

    def forward(self, x):
        _log.info("forward of %s", tuple(x.shape))
        print("forward", file=sys.stderr)
        warnings.warn("this file talks a lot", stacklevel=2)
        return super().forward(x)
