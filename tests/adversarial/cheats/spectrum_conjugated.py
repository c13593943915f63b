"""The conjugate of what is asked for.

defence: reference error
problem: spectrum
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).conj()
