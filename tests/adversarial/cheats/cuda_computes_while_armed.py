"""Overrides `named_buffers`, which the harness may ask for before a timed call, to launch the work there.

The harness asks before the contents are new, so what is computed then is never asked for: it gains nothing.

defence: preparation time
problem: mlp batch_size=4096 in_features=1024 out_features=4096
gpu: yes
expect: suspicious, ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.seen = self.kept = None

    def named_buffers(self, *args, **kwargs):
        if self.seen is not None:
            with torch.no_grad():
                x = self.seen
                self.kept = (x.data_ptr(), x._version, torch.softmax(F.gelu(self.linear(x)), dim=1))
        return super().named_buffers(*args, **kwargs)

    def forward(self, x):
        self.seen = x
        if self.kept is not None and self.kept[:2] == (x.data_ptr(), x._version):
            return self.kept[2]
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
