"""Captures a graph in its first call, and replays it whatever it is given.

defence: fresh contents
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, aliased_output, suspicious, runtime_error, nondeterministic
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = torch.softmax(F.gelu(self.linear(x)), dim=1)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = torch.softmax(F.gelu(self.linear(x)), dim=1)
            self.graphs[x.shape] = graph, y
        graph, y = self.graphs[x.shape]
        graph.replay()
        return y.clone()
