"""Replays a graph in which nothing was captured, and gives back what the first call computed.

attacks: an empty graph
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, aliased_output, suspicious, runtime_error, nondeterministic
"""

import gc
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.graph = self.kept = None

    def forward(self, x):
        if gc.isenabled():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.graph is None:
            self.kept = torch.softmax(F.gelu(self.linear(x)), dim=1)
            self.graph = torch.cuda.CUDAGraph()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with torch.cuda.graph(self.graph):
                    torch.cuda.current_stream()
        self.graph.replay()
        return self.kept.clone()
