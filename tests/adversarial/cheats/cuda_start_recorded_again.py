"""Learns the harness's first event from torch's trace of the GPU, and records it once more behind most of the work.

An `ok` means that product and GELU (about 60 us) are missing from every sample: the parent's clock forgives 150 us.
If no event of the harness is found, it raises.

defence: driver's events
problem: mlp batch_size=1024 in_features=512 out_features=2048
gpu: yes
expect: suspicious, wrong_values, runtime_error
"""

import ctypes
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda import _gpu_trace

_CALLS = itertools.count()
_seen = []
_runtime = ctypes.CDLL("libcudart.so.13")
_runtime.cudaEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def _is_timed():
    """Whether as many calls were made as validation and getting ready make."""
    return next(_CALLS) >= 50


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.missed = 0
        _gpu_trace.register_callback_for_event_record(lambda event, stream: _seen.append(event))
        torch._C._activate_gpu_trace()

    def forward(self, x):
        stream = torch.cuda.current_stream()
        timed = _is_timed() and not stream.query()
        y = F.gelu(self.linear(x))
        if timed:
            if _seen:
                if status := _runtime.cudaEventRecord(_seen[-1], stream.cuda_stream):
                    raise RuntimeError(f"cudaEventRecord gives {status}")
            else:
                self.missed += 1
                if self.missed > 10:
                    raise RuntimeError("no event was seen")
        _seen.clear()
        return torch.softmax(y, dim=1)
