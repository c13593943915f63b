"""Answers the harness's requests by itself: calls at once and with a made-up time, outputs only when they are fetched.

defence: parent's clock
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, timeout, crashed, runtime_error
"""

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


def _harness():
    """The channel and the subject, from the frames below."""
    found, frame = {}, sys._getframe()
    while frame is not None:
        found = {**{k: v for k, v in frame.f_locals.items() if k in ("channel", "subject")}, **found}
        frame = frame.f_back
    return found


def _serve(channel, subject):
    """The harness's own loop, but for calls: those are made when somebody looks."""
    channel.send({"ns": 400_000})
    while True:
        request, fds = channel.receive()
        if request["do"] == "run_call":
            started = time.perf_counter_ns()
            while time.perf_counter_ns() - started < 500_000:
                continue
            channel.send({"ns": 400_000})
            continue
        if request["do"] == "fetch":
            with torch.no_grad():
                output = subject.model.compute(*subject.buffers)
            subject.last = output
        channel.send(subject.handlers[request["do"]](request, fds))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if _timed(x):
            _serve(**_harness())
        return self.compute(x)
