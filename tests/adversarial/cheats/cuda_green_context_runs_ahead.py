"""Computes on a stream of a green context, from where the contents lie ready, while work is queued before the call.

An `ok` means that a green context's stream is not held back by the fence of the primary one: where its work was not
seen to end before the clock began in any of ten timed calls, it raises.

defence: fenced streams
problem: mlp batch_size=1024 in_features=512 out_features=2048
gpu: yes
expect: suspicious, wrong_values, runtime_error
"""

import ctypes
import itertools
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 2}


def _found_elsewhere(x):
    """Tensors over all other memory of just ``x``'s size that torch's allocator has given out."""
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["requested_size"] == x.numel() * 4:
                yield torch.as_tensor(Memory(address, tuple(x.shape)), device=x.device)
            address += block["size"]


def _same_elsewhere(x):
    """Where the contents of ``x`` came from: they are there before the call."""
    return next((found for found in _found_elsewhere(x) if torch.equal(found, x)), None)



_driver = ctypes.CDLL("libcuda.so.1")


def _call(name, *arguments):
    if status := getattr(_driver, name)(*arguments):
        raise RuntimeError(f"{name} gives error {status}")


def _green_stream():
    """A stream of a green context that has the whole device, and that context as one that can be made current."""
    torch.cuda.current_stream().synchronize()
    device, resource, description = ctypes.c_int(), (ctypes.c_char * 8192)(), ctypes.c_void_p()
    _call("cuCtxGetDevice", ctypes.byref(device))
    _call("cuDeviceGetDevResource", device, resource, 1)
    _call("cuDevResourceGenerateDesc", ctypes.byref(description), resource, 1)
    green, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuGreenCtxCreate", ctypes.byref(green), description, device, 1)
    _call("cuCtxFromGreenCtx", ctypes.byref(context), green)
    _call("cuGreenCtxStreamCreate", ctypes.byref(stream), green, 1, 0)
    return torch.cuda.ExternalStream(stream.value), context


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.side = self.source = self.context = None
        self.ran_ahead = self.tried = 0

    def forward(self, x):
        main = torch.cuda.current_stream()
        if not _is_timed() or main.query():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.source is None:
            self.source = _same_elsewhere(x)
            self.tried += self.source is None
            if self.tried > 10:
                raise RuntimeError("nobody knows where the contents come from")
            self.side, self.context = self.side and (self.side, self.context) or _green_stream()
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        _call("cuCtxPushCurrent_v2", self.context)
        try:
            with torch.cuda.stream(self.side):
                y = F.gelu(self.linear(self.source))
                done = torch.cuda.Event()
                done.record(self.side)
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self.tried += 1
        if not self.ran_ahead:
            if self.tried > 10:
                raise RuntimeError("a green context is held back too")
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until and not main.query():
                if done.query() and not main.query():
                    self.ran_ahead += 1
                    break
        main.wait_event(done)
        y.record_stream(main)
        return torch.softmax(y, dim=1)
