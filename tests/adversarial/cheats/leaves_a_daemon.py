"""Starts a process of a session of its own, that is to live on.

defence: work after the call, processes
problem: mlp
expect: runtime_error, suspicious
"""

import os
import subprocess

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("bash", ["bash", "-c", "exec -a kgen-adversary sleep 1000"])
            os._exit(0)
        subprocess.Popen(["bash", "-c", "exec -a kgen-adversary sleep 1000"], start_new_session=True)
        raise RuntimeError("they live on")
