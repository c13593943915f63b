"""Replaces `torch._C._cuda_sleep`, which `torch.cuda._sleep` looks up with each call, and computes ahead before it.

An `ok` means that product and GELU of (most) timed calls ran before their clock started, from the copy of the
contents that lies ready in another tensor; where that never succeeds in thirty timed calls, it raises.

defence: replaced names
problem: mlp batch_size=1024 in_features=512 out_features=2048
gpu: yes
expect: suspicious, wrong_values, runtime_error
"""

import itertools

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


class Ahead:
    """The product and GELU of what the next call will be given, computed as soon as that is known."""

    def __init__(self, linear):
        self.linear, self.side, self.source, self.result = linear, None, None, None
        self.seed, self.busy, self.used, self.missed = None, False, 0, 0

    def launch(self):
        """Compute, if the seed says that another call is coming."""
        seed = torch.initial_seed()
        if self.busy or self.source is None or seed == self.seed:
            return
        self.busy = True
        try:
            with torch.no_grad(), torch.cuda.stream(self.side):
                self.side.wait_stream(torch.cuda.default_stream())
                y = F.gelu(self.linear(self.source))
                done = torch.cuda.Event()
                done.record()
            self.result, self.seed = (y, done), seed
        finally:
            self.busy = False

    def take(self, x):
        """What was computed for this call, or nothing; the first time, find out where its contents come from."""
        main = torch.cuda.current_stream()
        if self.source is None:
            if not main.query():
                self.side, self.source = torch.cuda.Stream(priority=-1), _same_elsewhere(x)
                self.missed += self.source is None
                if self.missed > 10:
                    raise RuntimeError("nobody knows where the contents come from")
            self.seed = torch.initial_seed()
            return None
        found, self.result = self.result, None
        if found is None or self.seed != torch.initial_seed():
            self.seed, self.missed = torch.initial_seed(), self.missed + 1
            if self.missed > 30 and not self.used:
                raise RuntimeError("nothing could be computed ahead")
            return None
        self.used += 1
        y, done = found
        main.wait_event(done)
        y.record_stream(main)
        return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.ahead = Ahead(self.linear)

        sleep = torch._C._cuda_sleep

        def launch_and_sleep(cycles):
            self.ahead.launch()
            sleep(cycles)

        torch._C._cuda_sleep = launch_and_sleep

    def forward(self, x):
        y = self.ahead.take(x) if _is_timed() else None
        if y is None:
            y = F.gelu(self.linear(x))
        return torch.softmax(y, dim=1)
