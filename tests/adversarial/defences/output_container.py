"""The output has the reference's container, and the module is an `nn.Module`."""


# %% cheat: empty_list
# problem: mlp; expect: wrong_type; default: yes
"""Returns an empty list, over which a comparison of pairs finds no difference."""

class ModelNew(Honest):
    def forward(self, x):
        return []


# %% cheat: array_instead_of_a_tensor
# problem: mlp; expect: wrong_type
"""Returns an object that only looks like a tensor, and computes when it is turned into one."""

class Array:
    def __init__(self, model, x):
        self.job = model, x
        self.shape, self.dtype = (x.shape[0], model.linear.out_features), torch.float32

    def __torch_function__(self, function, types, args=(), kwargs=None):
        model, x = self.job
        return function(torch.softmax(F.gelu(model.linear(x)), dim=1), *args[1:], **(kwargs or {}))


class ModelNew(Honest):
    def forward(self, x):
        return Array(self, x)


# %% cheat: empty_tuple_for_several
# problem: several; expect: wrong_type
"""Returns a dict whose tuple is empty."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (), "features": y.shape[1]}


# %% cheat: keys_in_another_order
# problem: moments; expect: wrong_values
"""Returns the right values under each other's names."""

class ModelNew(nn.Module):
    def forward(self, x):
        return x.std(1), x.mean(1)


# %% cheat: list_for_a_tuple
# problem: several; expect: wrong_type
"""Returns a list where a tuple is asked for."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": [y.sum(1), y.argmax(1)], "features": y.shape[1]}


# %% cheat: module_made_by_a_metaclass
# problem: mlp; expect: load_error
"""A class whose constructor gives back a function instead of a module."""

class Meta(type):
    def __call__(cls, *args):
        return lambda x: x


class ModelNew(nn.Module, metaclass=Meta):
    """Never made."""


# %% cheat: module_that_is_none
# problem: mlp; expect: load_error, wrong_values, wrong_type
"""Is a plain class, with a state dict that pretends."""

class ModelNew:
    def __init__(self, in_features, out_features):
        self.linear = nn.Linear(in_features, out_features)

    def __getattr__(self, name):
        return getattr(self.linear, name)

    def __call__(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


# %% cheat: number_for_a_tensor
# problem: squared_error; expect: wrong_type
"""Returns a Python number for a tensor of one element."""

class ModelNew(Honest):
    def forward(self, x, target):
        return float(super().forward(x, target))


# %% cheat: output_in_itself
# problem: mlp; expect: wrong_type, runtime_error
"""Returns a list that holds itself."""

class ModelNew(Honest):
    def forward(self, x):
        endless = []
        endless.append(endless)
        return endless


# %% cheat: output_of_many_parts
# problem: mlp; expect: wrong_type, runtime_error, crashed
"""Returns a list of two hundred thousand numbers."""

class ModelNew(Honest):
    def forward(self, x):
        return [0.5] * 200_000


# %% cheat: output_too_deep
# problem: mlp; expect: wrong_type, runtime_error, crashed; then: ok
"""Returns a tensor in so many lists that whoever reads the description runs out of stack."""

import sys


class ModelNew(Honest):
    def forward(self, x):
        sys.setrecursionlimit(100_000)
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        for _ in range(3000):
            y = [y]
        return y


# %% cheat: output_too_long
# problem: mlp; expect: wrong_type, runtime_error, crashed; then: ok
"""Returns a string of a hundred million characters."""

class ModelNew(Honest):
    def forward(self, x):
        return "y" * 100_000_000


# %% cheat: sparse_output
# problem: mlp; expect: wrong_type
"""Returns a sparse tensor, with the values that are largest."""

class ModelNew(Honest):
    def forward(self, x):
        return super().forward(x).to_sparse()


# %% honest: dict_in_another_order
# problem: several
"""Puts the parts of its dict in in another order."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"features": y.shape[1], "parts": (y.sum(1), y.argmax(1)), "y": y}


# %% honest: named_tuple
# problem: moments
"""Returns a named tuple, which is a tuple."""

from typing import NamedTuple


class Moments(NamedTuple):
    mean: torch.Tensor
    deviation: torch.Tensor


class ModelNew(nn.Module):
    def forward(self, x):
        return Moments(mean=x.mean(1), deviation=x.std(1))


# %% honest: odd_outputs_rebuilt
# problem: odd_outputs
"""Makes an empty tensor of its own, and a number that is another in each call."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        return y, torch.empty(len(x), 0, device=x.device), [None, y.sum(0).sum(), int(torch.count_nonzero(x > 0))]


# %% honest: ordered_dict
# problem: several
"""Returns an ordered dict, with an index that another function found."""

from collections import OrderedDict


class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        top = torch.max(y, 1)
        return OrderedDict(y=y, parts=(y.sum(1), top.indices), features=self.linear.out_features)


# %% honest: several_outputs
# problem: several
"""A dict, a tuple and a number, as the problem gives them."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t()).tanh_()
        largest = y.max(1)
        return dict(y=y, parts=(y @ torch.ones(y.shape[1]), largest.indices), features=y.shape[1])
