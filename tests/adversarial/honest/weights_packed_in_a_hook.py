"""Packs its weights after each `load_state_dict`, by torch's own hook.

defence: changed weights
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())
        self.pack()

    def pack(self):
        self.packed = self.linear.weight.detach().t().contiguous()

    def forward(self, x):
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.packed)), dim=1)
