"""Prints until nobody takes it any more.

defence: log limit
default: yes
problem: mlp
expect: runtime_error, crashed, timeout
seconds: 4
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        line = "kgen: status ok " * 65536
        while True:
            print(line, flush=True)
