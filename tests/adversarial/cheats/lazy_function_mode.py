"""Enters a torch function mode for good: it computes when any function meets the output.

defence: modes and hooks
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_jobs = {}


def _finish(y):
    job = _jobs.pop(id(y), None)
    if job is not None and job[0]() is y:
        with torch.no_grad():
            y.copy_(job[1]())


class Late(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        for y in args:
            _finish(y)
        return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        Late().__enter__()

    def forward(self, x):
        for job in list(_jobs.values()):
            _finish(job[0]())
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[id(y)] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y
