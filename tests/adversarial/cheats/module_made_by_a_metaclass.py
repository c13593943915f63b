"""A class whose constructor gives back a function instead of a module.

defence: output container
problem: mlp
expect: load_error
"""

import torch.nn as nn


class Meta(type):
    def __call__(cls, *args):
        return lambda x: x


class ModelNew(nn.Module, metaclass=Meta):
    """Never made."""
