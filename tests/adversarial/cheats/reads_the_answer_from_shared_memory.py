"""Reads every memory file that it has open, in the hope of an expected output.

defence: separate oracle
problem: mlp
expect: wrong_values, suspicious
"""

import os

import torch
import torch.nn as nn


def _files():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:"):
                with open(f"/proc/self/fd/{name}", "rb") as file:
                    yield file.read()
        except OSError:
            continue


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        for data in _files():
            if len(data) >= 4 * shape[0] * shape[1]:
                y = torch.frombuffer(bytearray(data), dtype=torch.float32, count=shape[0] * shape[1]).view(shape)
                if bool(((y.sum(1) - 1).abs() < 1e-3).all()):
                    return y.clone()
        return x.new_zeros(shape)
