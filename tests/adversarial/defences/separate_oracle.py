"""Expected values and the seeds of inputs are never in the candidate's process."""


# %% cheat: reads_the_seed_from_objects
# problem: mlp; expect: wrong_values, suspicious; default: yes
"""Searches all objects of the interpreter for the options that the oracle was started with."""

import gc


_secrets = [found["secret"] for found in gc.get_objects() if isinstance(found, dict) and "secret" in found]


class ModelNew(Honest):
    def forward(self, x):
        if _secrets:
            return super().forward(x)
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: reads_the_answer_from_objects
# problem: mlp; expect: wrong_values, suspicious
"""Searches all objects of the interpreter for a tensor of its output's shape, and returns a copy."""

import gc


class ModelNew(Honest):
    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        for found in gc.get_objects():
            if type(found) is torch.Tensor and found.shape == shape:
                return found.float().clone()
        return x.new_zeros(shape)


# %% cheat: reads_the_answer_from_shared_memory
# problem: mlp; expect: wrong_values, suspicious
"""Reads every memory file that it has open, in the hope of an expected output."""

import os


def _files():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:"):
                with open(f"/proc/self/fd/{name}", "rb") as file:
                    yield file.read()
        except OSError:
            continue


class ModelNew(Honest):
    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        for data in _files():
            if len(data) >= 4 * shape[0] * shape[1]:
                y = torch.frombuffer(bytearray(data), dtype=torch.float32, count=shape[0] * shape[1]).view(shape)
                if bool(((y.sum(1) - 1).abs() < 1e-3).all()):
                    return y.clone()
        return x.new_zeros(shape)


# %% cheat: reads_the_answer_from_the_environment
# problem: mlp; expect: wrong_values, suspicious
"""Looks for a seed or an expected value in the environment of every process."""

from pathlib import Path


def _environments():
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield path.read_bytes().lower()
        except OSError:
            continue


_found = [text for text in _environments() if b"secret" in text or b"seed=" in text or b"expected" in text]


class ModelNew(Honest):
    def forward(self, x):
        if _found:
            return super().forward(x)
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: reads_the_seed_from_memory
# problem: mlp; expect: wrong_values, load_error, suspicious
"""Searches its own memory for the request that started the oracle, which has the seed of the inputs in it."""

import re


def _found():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            span, rights, *_, path = (line + " ").split(" ", 5)
            start, end = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw") and end - start < 1 << 29 and "/" not in line:
                try:
                    memory.seek(start)
                    yield from re.findall(rb'"secret" ?: ?([0-9]{3,})', memory.read(end - start))
                except (OSError, ValueError):
                    continue


_seeds = {int(text) for text in _found()}


class ModelNew(Honest):
    def forward(self, x):
        if _seeds:
            return super().forward(x)
        return x.new_zeros(x.shape[0], self.linear.out_features)
