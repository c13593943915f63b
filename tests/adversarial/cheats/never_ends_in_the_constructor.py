"""Never comes back from its constructor.

defence: deadlines
problem: mlp
expect: timeout
seconds: 1
"""

import time

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        while True:
            time.sleep(1)
