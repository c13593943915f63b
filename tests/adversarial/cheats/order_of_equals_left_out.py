"""Returns zeros for an order in which most elements are equal to others.

defence: integer outputs
problem: partition_order
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).mean(1), torch.zeros(x.shape, dtype=torch.int64)
