"""Updates its running statistics from a copy made in the first call: right once, wrong from the second call on.

defence: state after the call
problem: batch_norm
mode: train
expect: wrong_state
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.version = None

    def forward(self, x):
        norm, y = self.norm, self.linear(x)
        if self.version != self.linear.weight._version:
            self.version = self.linear.weight._version
            self.old = [b.clone() for b in norm.buffers()]
        norm.running_mean.copy_(torch.lerp(self.old[0], y.mean(0), norm.momentum))
        norm.running_var.copy_(torch.lerp(self.old[1], y.var(0), norm.momentum))
        norm.num_batches_tracked.copy_(self.old[2] + 1)
        return F.batch_norm(y, None, None, norm.weight, norm.bias, True) * self.scale
