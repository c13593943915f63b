"""Leaves the sum to NumPy, whose threads spin for a while when they have nothing to do.

defence: work after the call, threads
problem: squared_error batch_size=1024 features=512
expect: ok
"""

import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        differences = (x - target).double().numpy().ravel()
        with np.errstate(all="ignore"):
            return torch.tensor(np.dot(differences, differences) / differences.size, dtype=x.dtype)
