"""Has the host do a part of the work in a callback on a stream of its own, after forward has returned.

defence: joined streams
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: suspicious, wrong_values, nondeterministic, aliased_output
"""

import threading

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.side = None

    def fill(self, x, y, ready):
        with torch.no_grad(), torch.cuda.stream(self.side):
            ready.wait()
            y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        ready = torch.cuda.Event()
        ready.record()
        threading.Thread(target=self.fill, args=(x, y, ready)).start()
        return y
