"""A worker that uses the processor while nothing is asked of it is reported."""


# %% cheat: spins_between_calls
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious; default: yes
"""A thread keeps a core busy while the module is not called: whatever is timed beside it gets slower."""

import threading

# include timed.py


_idle = threading.Event()


def _spin():
    a = torch.rand(1 << 16)
    while True:
        _idle.wait()
        a.sort()


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        threading.Thread(target=_spin, daemon=True).start()

    def forward(self, x):
        _idle.clear()
        y = super().forward(x)
        if _timed(x):
            _idle.set()
        return y


# %% cheat: spins_in_other_processes
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, runtime_error, load_error
"""Starts processes that keep every core busy, and stops them while it is called."""

import os
import signal


def _spin():
    pid = os.fork()
    if pid == 0:
        while True:
            continue
    os.kill(pid, signal.SIGSTOP)
    return pid


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.others = [_spin() for _ in range(2)]

    def forward(self, x):
        for pid in self.others:
            os.kill(pid, signal.SIGSTOP)
        y = super().forward(x)
        for pid in self.others:
            os.kill(pid, signal.SIGCONT)
        return y


# %% cheat: cuda_hogs_the_device_between_calls
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, timeout
"""A thread keeps the device busy whenever its own module is not called for a while: while others are timed, that is.

An `ok` means that nobody sees it. Its own samples are honest; in finals those of all others, PyTorch's among them,
come out longer, as the device's time is shared.
"""

import threading
import time


_IDLE_SECONDS = 0.01


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
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
        y = super().forward(x)
        self.called = time.monotonic()
        return y
