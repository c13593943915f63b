"""A tuple subclass that computes its parts when somebody iterates.

defence: plain tensors
problem: moments batch_size=4096 features=1024
expect: wrong_type, wrong_shape, aliased_output, suspicious
"""

import torch.nn as nn


class Lazy(tuple):
    def __iter__(self):
        x = tuple.__getitem__(self, 0)
        return iter((x.mean(1), x.std(1)))


class ModelNew(nn.Module):
    def forward(self, x):
        return Lazy((x, x))
