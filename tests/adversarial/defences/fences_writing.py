"""The fences around inputs are compared after the call."""


# %% cheat: writes_past_the_input
# problem: standardise; expect: mutated_input, crashed, suspicious; default: yes
"""Writes a zero behind its input's last element."""

import ctypes


class ModelNew(Honest):
    def forward(self, x):
        ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[x.numel()] = 0.0
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale)
