"""The Fourier transform of a real signal: half of it computed, the other half its conjugate.

defence: reference error
problem: spectrum
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = torch.fft.rfft(x)
        return torch.cat([half, half[:, 1 : (x.shape[1] + 1) // 2].flip(1).conj()], 1)
