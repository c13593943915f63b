"""Raises `GeneratorExit`, which is no `Exception`, when it is made.

defence: exceptions
problem: mlp
expect: load_error, crashed
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        raise GeneratorExit
