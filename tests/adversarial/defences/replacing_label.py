"""A label says that the kernels of a file replace no operator."""


# %% cheat: kernel_beside_the_library
# problem: mlp; expect: ok; label: replaces none; default: yes
"""Copies its input by native code that nothing reads, and calls the same operators that the problem calls."""

import ctypes


class ModelNew(Honest):
    def forward(self, x):
        scratch = torch.empty_like(x)
        ctypes.memmove(scratch.data_ptr(), x.data_ptr(), x.nbytes)
        return super().forward(x)
