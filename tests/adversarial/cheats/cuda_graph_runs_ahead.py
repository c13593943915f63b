"""Replays a graph on a stream of its own that waits for nobody, copies to and fro included, and joins it late.

defence: fenced streams
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: suspicious, wrong_values, nondeterministic
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.side, self.graphs = None, {}

    def capture(self, x):
        x = x.clone()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return graph, x, y

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, given, result = self.graphs[x.shape]
        with torch.cuda.stream(self.side):
            given.copy_(x)
            graph.replay()
            y = result.clone()
        torch.cuda.current_stream().wait_stream(self.side)
        return y
