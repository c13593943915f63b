"""Logs, warns, and has a traceback formatted of an error that it expects.

defence: audit hook
default: yes
problem: mlp
expect: ok
"""

import logging
import traceback
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

_log = logging.getLogger(__name__)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        _log.warning("a batch of %d", len(x))
        warnings.warn("this is a test", stacklevel=2)
        try:
            x.view(-1, 3, 5, 7)
        except RuntimeError:
            _log.error("as expected: %s", traceback.format_exc())
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
