"""Returns an empty output, and lets a thread fill it.

defence: work after the call, threads
default: yes
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic
"""

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
        if self.thread is not None:
            self.thread.join()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.thread = threading.Thread(target=self.fill, args=(x, y))
        self.thread.start()
        return y
