"""Replays a graph captured for each shape, with its input copied in and its output copied out.

defence: fresh contents
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.graphs = {}

    def capture(self, x):
        x = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return graph, x, y

    def forward(self, x):
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, given, result = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return result.clone()
