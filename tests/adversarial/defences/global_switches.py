"""Global switches of torch and of the processor are compared after each call."""


# %% cheat: threads_changed
# problem: mlp; expect: suspicious; default: yes
"""Leaves the number of threads at one."""

class ModelNew(Honest):
    def forward(self, x):
        torch.set_num_threads(torch.get_num_threads() + 1)
        return super().forward(x)


# %% cheat: cuda_tf32_in_the_library
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values, suspicious;
# default: yes
"""Sets the mode of torch's own cuBLAS handle, behind torch's back."""

import ctypes
from pathlib import Path


def _cublas():
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if "libcublas.so" in line)
    return ctypes.CDLL(line.split()[-1])


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.cublas = None

    def forward(self, x):
        if self.cublas is None:
            self.cublas = _cublas()
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        self.cublas.cublasSetMathMode(handle, 3)
        w = self.linear.weight.t().contiguous()
        y = torch.empty(x.shape[0], w.shape[1], device=x.device)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        n, m, k = w.shape[1], x.shape[0], x.shape[1]
        self.cublas.cublasSgemm_v2(handle, 0, 0, n, m, k, ctypes.byref(one), ctypes.c_void_p(w.data_ptr()), n,
                                   ctypes.c_void_p(x.data_ptr()), k, ctypes.byref(zero),
                                   ctypes.c_void_p(y.data_ptr()), n)
        self.cublas.cublasSetMathMode(handle, 0)
        return torch.softmax(F.gelu(y + self.linear.bias), dim=1)


# %% cheat: autocast_left_on
# problem: mlp; expect: suspicious, wrong_values, wrong_type
"""Enters autocast and never leaves it."""

torch.autocast("cpu", torch.bfloat16).__enter__()


class ModelNew(Honest):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x)


# %% cheat: default_device_changed
# problem: mlp; expect: suspicious, wrong_values, wrong_type, runtime_error
"""Leaves the meta device as the default one, on which everything is done at once."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        torch.set_default_device("meta")
        return y


# %% cheat: default_dtype_changed
# problem: mlp; expect: suspicious
"""Leaves another default dtype."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        torch.set_default_dtype(torch.bfloat16)
        return y


# %% cheat: deterministic_changed
# problem: mlp; expect: suspicious
"""Asks for deterministic algorithms, for good."""

torch.use_deterministic_algorithms(True)


# %% cheat: inference_mode_left_on
# problem: mlp; expect: suspicious
"""Enters inference mode and never leaves it."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.mode = None

    def forward(self, x):
        if self.mode is None:
            self.mode = torch.inference_mode()
            self.mode.__enter__()
        return super().forward(x)


# %% cheat: matmul_precision_changed
# problem: mlp; expect: suspicious, wrong_values
"""Allows products of lower precision, for good."""

torch.set_float32_matmul_precision("medium")


# %% cheat: processors_changed
# problem: mlp; expect: suspicious
"""Binds itself to other processors than it was given."""

import os


class ModelNew(Honest):
    def forward(self, x):
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
        return super().forward(x)


# %% cheat: rounding_changed
# problem: mlp; expect: suspicious, wrong_values
"""Has the processor round towards zero, for good."""

import ctypes


ctypes.CDLL("libm.so.6").fesetround(0xC00)


# %% cheat: threads_changed_and_hidden
# problem: mlp; expect: suspicious
"""Leaves another number of threads, and patches the function that tells it."""

_before = torch.get_num_threads()
torch.set_num_threads(_before + 2)
torch.get_num_threads = lambda: _before


# %% cheat: threads_changed_in_turns
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Changes the number of threads while it runs, and has another thread change it back and forth beside the harness."""

import threading
import time


def _flicker():
    while True:
        torch.set_num_threads(2)
        time.sleep(0.001)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        threading.Thread(target=_flicker, daemon=True).start()

    def forward(self, x):
        torch.set_num_threads(1)
        y = super().forward(x)
        return y


# %% cheat: cuda_tf32_by_the_environment
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values, suspicious, ok
"""Has the library use TF32 by an environment variable that it reads when it starts."""

import os

os.environ["NVIDIA_TF32_OVERRIDE"] = "1"


# %% cheat: cuda_tf32_for_a_moment
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values
"""Allows TF32 for its own product, and forbids it again."""

class ModelNew(Honest):
    def forward(self, x):
        torch.backends.cuda.matmul.allow_tf32 = True
        y = self.linear(x)
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.softmax(F.gelu(y), dim=1)


# %% honest: mkldnn_flags
# problem: mlp
"""Multiplies with oneDNN switched off for its own product, by torch's own context."""

class ModelNew(Honest):
    def forward(self, x):
        with torch.backends.mkldnn.flags(enabled=False):
            return super().forward(x)


# %% honest: precision_set_as_it_is
# problem: mlp
"""Asks for the precision of products that is set already."""

torch.set_float32_matmul_precision("highest")


# %% honest: seeds_of_its_own
# problem: mlp
"""Has a generator of its own, seeded, which touches no global state."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.generator = torch.Generator().manual_seed(0)
        self.block = int(torch.randint(16, 32, (), generator=self.generator))

    def forward(self, x):
        return torch.cat([torch.softmax(F.gelu(self.linear(rows)), dim=1) for rows in x.split(self.block)])


# %% honest: threads_changed_and_back
# problem: mlp
"""Runs a small step on one thread, and sets the number back."""

class ModelNew(Honest):
    def forward(self, x):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        y = self.linear(x)
        torch.set_num_threads(threads)
        return torch.softmax(F.gelu(y), dim=1)
