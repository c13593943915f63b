"""Each row chooses two experts, with weights that add up to one."""

import torch
import torch.nn as nn

batch_size = 96
features = 32
experts = 8


class Model(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts)

    def forward(self, x):
        weights, chosen = torch.softmax(self.gate(x), -1).topk(2)
        return weights / weights.sum(-1, keepdim=True), chosen


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features, experts]
