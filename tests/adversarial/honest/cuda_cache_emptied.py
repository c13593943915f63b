"""Attends with all scores in memory, which it gives back to the driver at the end of each call.

defence: preparation time
problem: attention batch_size=16 heads=8 length=256 width=64
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
        weights = torch.softmax(scores, dim=-1)
        y = torch.matmul(weights, v)
        del scores, weights
        torch.cuda.empty_cache()  # keep the peak of a pipeline low
        return y
