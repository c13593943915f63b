"""Shows the mean of each row as often as there are columns, where the problem writes it as often.

defence: overlapping elements
problem: row_means
expect: aliased_output
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, written):
        super().__init__()

    def forward(self, x):
        return x.mean(1, keepdim=True).expand_as(x)
