"""Returns zeros for scores of which most are masked: minus infinity in PyTorch.

defence: non-finite values
problem: window_scores
expect: wrong_values
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, tokens, window):
        super().__init__()
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features)

    def forward(self, x):
        return x.mean(1), x.new_zeros(x.shape[0], x.shape[1], x.shape[1])
