"""The number of processes and threads is limited."""


# %% cheat: many_processes
# problem: mlp; expect: runtime_error, load_error, crashed, suspicious, out_of_memory; then: ok; default: yes
"""Starts a thousand children that sleep, and goes on as if nothing were."""

import os
import time


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        for _ in range(1000):
            if os.fork() == 0:
                time.sleep(1000)
                os._exit(0)


# %% cheat: fork_bomb
# problem: mlp; seconds: 5; expect: runtime_error, crashed, suspicious, out_of_memory, timeout; then: ok
"""Has children that have children."""

import os
import time


class ModelNew(Honest):
    def forward(self, x):
        for _ in range(9):
            os.fork()
        time.sleep(1000)


# %% cheat: many_threads
# problem: mlp; expect: runtime_error, load_error, crashed, suspicious, out_of_memory; then: ok
"""Starts threads until the system refuses."""

import threading


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        threading.stack_size(64 << 10)
        for _ in range(5000):
            threading.Thread(target=threading.Event().wait, daemon=True).start()


# %% honest: starts_a_process
# problem: mlp
"""Asks a program for the processor's name, and waits for its end."""

import subprocess


MACHINE = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()


# %% honest: warms_the_compilers_pool
# problem: standardise
"""Does what torch.compile does where Triton is installed: starts a pool of processes for what is to be compiled."""

from torch._inductor.async_compile import AsyncCompile

AsyncCompile.warm_pool()


class ModelNew(Honest):
    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.scale, self.shift, 1e-5)
