"""Prints what it does, within reason.

defence: log limit
problem: mlp
expect: ok
"""

import logging
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO)
_log = logging.getLogger(__name__)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        print("constructed", in_features, out_features, "speedup: 1.0", flush=True)

    def forward(self, x):
        _log.info("forward of %s", tuple(x.shape))
        print("forward", file=sys.stderr)
        warnings.warn("this file talks a lot", stacklevel=2)
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
