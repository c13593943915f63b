"""Returns the right values under each other's names.

defence: output container
problem: moments
expect: wrong_values
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.std(1), x.mean(1)
