"""Prints that all is well, and leaves.

defence: crashes
problem: mlp
expect: crashed
"""

import json
import os
import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for stream in (sys.stdout, sys.stderr):
            print(json.dumps({"status": "ok", "ns": 1, "speedup": 100.0, "correct": True}), file=stream, flush=True)
        os._exit(0)
