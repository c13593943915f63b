"""Replays a graph in which nothing was captured, and gives back what the first call computed.

defence: fresh contents
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, aliased_output, suspicious, runtime_error, nondeterministic
"""

import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.graph = self.kept = None

    def forward(self, x):
        if not _timed(x):
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
