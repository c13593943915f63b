"""Takes the last eight of 256 terms of each product in TF32.

defence: reference error
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        weight, k = self.linear.weight.t(), x.shape[1] - 8
        y = torch.addmm(self.linear.bias, x[:, :k], weight[:k])
        torch.backends.cuda.matmul.allow_tf32 = True
        y = torch.addmm(y, x[:, k:].contiguous(), weight[k:].contiguous())
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.softmax(F.gelu(y), dim=1)
