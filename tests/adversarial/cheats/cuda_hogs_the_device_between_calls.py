"""A thread keeps the device busy whenever its own module is not called for a while: while others are timed, that is.

An `ok` means that nobody sees it. Its own samples are honest; in finals those of all others, PyTorch's among them,
come out longer, as the device's time is shared.

defence: work between calls
problem: mlp batch_size=4096 in_features=1024 out_features=4096
gpu: yes
expect: suspicious, timeout
"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

_IDLE_SECONDS = 0.01


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.called = None
        threading.Thread(target=self.hog, daemon=True).start()

    def hog(self):
        side, busy, done = None, None, None
        while True:
            time.sleep(0.0005)
            if self.called is None or time.monotonic() - self.called < _IDLE_SECONDS:
                continue
            with torch.no_grad():
                if side is None:
                    side, done = torch.cuda.Stream(), torch.cuda.Event()
                    with torch.cuda.stream(side):
                        busy = torch.ones(2048, 2048, device="cuda")
                with torch.cuda.stream(side):
                    for _ in range(2):
                        busy @ busy
                    done.record()
                while not done.query():
                    time.sleep(0.0001)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        self.called = time.monotonic()
        return y
