"""Shows the mean of each row as often as there are columns, as the problem does.

defence: overlapping elements
problem: row_means written=0
expect: ok
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, written):
        super().__init__()

    def forward(self, x):
        return (x.sum(1, keepdim=True) / x.shape[1]).expand_as(x)
