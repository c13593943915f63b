"""Never comes back from forward, and ignores every signal that can be ignored.

defence: deadlines
problem: mlp
expect: timeout
seconds: 1
then: ok
"""

import signal

import torch.nn as nn

for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(_number, signal.SIG_IGN)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        while True:
            continue
