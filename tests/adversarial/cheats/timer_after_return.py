"""Sets a timer whose signal handler does the work, after forward has returned.

defence: work after the call, threads
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

import signal

import torch
import torch.nn as nn
import torch.nn.functional as F

_jobs = []


def _work(*_):
    while _jobs:
        model, x, y = _jobs.pop()
        with torch.no_grad():
            torch.softmax(F.gelu(model.linear(x)), dim=1, out=y)


signal.signal(signal.SIGALRM, _work)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        _jobs.append((self, x, y))
        signal.setitimer(signal.ITIMER_REAL, 2e-4)
        return y
