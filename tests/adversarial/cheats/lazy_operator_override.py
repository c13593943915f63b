"""Registers its own kernel for `aten::view`, by which the harness flattens outputs: names bound beforehand do not help.

defence: replaced operators
default: yes
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

import warnings
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

_jobs = {}
_library = torch.library.Library("aten", "IMPL")


def _finish(address):
    job = _jobs.pop(address, None)
    y = job[0]() if job else None
    if y is not None:
        with torch.no_grad():
            y.copy_(job[1]())


def _view(x, size):
    _finish(x.data_ptr())
    return torch.ops.aten._reshape_copy(x, size) if not x.is_contiguous() else _flat(x, size)


def _flat(x, size):
    size, known = list(size), 1
    for extent in size:
        known *= extent if extent != -1 else 1
    size = [x.numel() // known if extent == -1 else extent for extent in size]
    strides = [1] * len(size)
    for i in range(len(size) - 2, -1, -1):
        strides[i] = strides[i + 1] * size[i + 1]
    return x.as_strided(size, strides)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _library.impl("view", _view, "CPU")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for address in list(_jobs):
            _finish(address)
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[y.data_ptr()] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y
