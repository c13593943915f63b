"""Writes one file without end.

defence: disk limit
problem: mlp
expect: runtime_error, crashed, suspicious
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        block = bytes(16 << 20)
        with open("endless", "wb") as file:
            while True:
                file.write(block)
