"""Has children that have children.

defence: process limit
problem: mlp
expect: runtime_error, crashed, suspicious, out_of_memory, timeout
seconds: 5
then: ok
"""

import os
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for _ in range(9):
            os.fork()
        time.sleep(1000)
