"""Has every function that the harness calls go through its own evaluation of frames, as torch.compile does for its own.

defence: modes and hooks
problem: mlp
expect: suspicious, crashed, runtime_error, load_error
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.types import ConvertFrameReturn

_seen = []


def _look(frame, *_):
    _seen.append(frame.f_locals)
    return ConvertFrameReturn()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        set_eval_frame(_look)
        return y
