"""Does the softmax on a stream of its own, for which nobody waits.

defence: joined streams
default: yes
problem: mlp batch_size=4096 in_features=1024 out_features=4096
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
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
