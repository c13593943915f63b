"""Enters a dispatch mode in its first forward and never leaves it: it computes when any operator meets the output.

defence: modes and hooks
default: yes
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

_jobs = {}


def _finish(address):
    job = _jobs.pop(address, None)
    y = job[0]() if job else None
    if y is not None:
        with torch.no_grad():
            y.copy_(job[1]())


class Late(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for y in args:
            if isinstance(y, torch.Tensor):
                _finish(y.data_ptr())
        return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.mode = None

    def forward(self, x):
        for address in list(_jobs):
            _finish(address)
        if self.mode is None:
            self.mode = Late()
            self.mode.__enter__()
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[y.data_ptr()] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y
