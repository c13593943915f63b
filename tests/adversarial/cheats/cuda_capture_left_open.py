"""Begins to capture a graph and never ends it, so that whatever follows is not done but written down.

defence: joined streams
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: runtime_error, suspicious, wrong_values, crashed, nondeterministic
then: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_stream(torch.cuda.Stream())
        graph.capture_begin(capture_error_mode="relaxed")
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
