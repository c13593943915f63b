"""Changes the number of threads while it runs, and has another thread change it back and forth beside the harness.

defence: global switches
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious
"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def _flicker():
    while True:
        torch.set_num_threads(2)
        time.sleep(0.001)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        threading.Thread(target=_flicker, daemon=True).start()

    def forward(self, x):
        torch.set_num_threads(1)
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y
