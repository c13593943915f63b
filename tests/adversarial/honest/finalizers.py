"""Cleans its workspace up by a finalizer, and keeps weak references.

defence: audit hook
problem: mlp
expect: ok
"""

import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.cache = weakref.WeakValueDictionary()
        weakref.finalize(self, print, "gone")

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        self.cache["last"] = y
        y.note = "softmax"
        return y
