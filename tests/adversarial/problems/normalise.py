"""Each row over its length, and that at least a very small epsilon; as torch's own normalize does."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 96
features = 64


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, features)]
