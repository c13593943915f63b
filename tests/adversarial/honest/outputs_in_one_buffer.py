"""Returns two outputs that lie in one piece of memory of this call.

defence: aliased outputs
problem: moments
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        both = torch.empty(2, x.shape[0])
        both[0], both[1] = x.mean(1), x.std(1)
        return both[0], both[1]
