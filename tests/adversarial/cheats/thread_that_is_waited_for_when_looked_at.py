"""While it is timed, a thread does the work; the output's own `detach` waits for the thread.

defence: work after the call, threads
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, wrong_type, nondeterministic
"""

import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.thread = None

    def fill(self, x, y):
        with torch.no_grad():
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)

    def forward(self, x):
        if not _timed(x):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.thread is not None:
            self.thread.join()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        thread = self.thread = threading.Thread(target=self.fill, args=(x, y))
        thread.start()
        y.detach = lambda: thread.join() or torch.Tensor.detach(y)
        return y
