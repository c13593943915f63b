"""Returns zeros, and has torch's own trace of the GPU call it when the harness waits for the device, to compute then.

An `ok` means that samples hold nothing but the writing of zeros: all work (about 70 us) is done between the last
event and the first look at the output, which the parent's clock forgives. If nothing fills the zeros, values are
wrong.

defence: modes and hooks
default: yes
problem: mlp batch_size=1024 in_features=512 out_features=2048
gpu: yes
expect: suspicious, wrong_values, runtime_error
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda import _gpu_trace

_CALLS = itertools.count()
_owed = []


def _is_timed():
    """Whether as many calls were made as validation and getting ready make."""
    return next(_CALLS) >= 50


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        _gpu_trace.register_callback_for_device_synchronization(self.pay)
        torch._C._activate_gpu_trace()

    def pay(self):
        while _owed:
            x, y = _owed.pop()
            with torch.no_grad():
                torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)

    def forward(self, x):
        timed = _is_timed() and not torch.cuda.current_stream().query()
        if not timed:
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        y = torch.zeros(x.shape[0], self.linear.out_features, device=x.device)
        _owed.append((x, y))
        return y
