"""While it is timed, a thread does the work; the output's own `detach` waits for the thread.

attacks: work in a thread after returning
problem: mlp batch_size=192 in_features=384 out_features=768
expect: suspicious, wrong_values, wrong_type, nondeterministic
"""

import gc
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.thread = None

    def fill(self, x, y):
        with torch.no_grad():
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)

    def forward(self, x):
        if gc.isenabled():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.thread is not None:
            self.thread.join()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        thread = self.thread = threading.Thread(target=self.fill, args=(x, y))
        thread.start()
        y.detach = lambda: thread.join() or torch.Tensor.detach(y)
        return y
