"""GPU sizes of the modules of ``tests/kinds_of_modules.py``: what stands for which part of a module's text.

PyTorch takes 0.05 ms or more of each on an H200: each reads or writes 30 MB or more, or multiplies as long.
"""

from __future__ import annotations

import re
import sys

from _record import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from kinds_of_modules import MODULES
from models import source

_ROWS, _WIDE = {"(6, 20)": "(8192, 2048)"}, {"(6, 20)": "(256, 4096)", "(24, 20)": "(4096, 4096)", "(24)": "(4096)", "(24, 1)": "(4096, 1)"}
_WORDS = {"(6, 32)": "(64, 4096)", "(4, 24)": "(512, 4096)"}
_CLASSES = {"(2, 5, 9, 8)": "(16, 8, 256, 256)", "randint(0, 5, (2, 9, 8))": "randint(0, 8, (16, 256, 256))"}
_NODES = {"(40, 12)": "(200000, 128)", "randint(0, 6, (40,))": "randint(0, 4096, (200000,))", "zeros(6, 12": "zeros(4096, 128"}
_IMAGE = {"(2, 8, 6, 4)": "(16, 32, 128, 128)"}
_DEEP = {"(2, 8, 6, 4)": "(16, 64, 64, 64)"}
_SEQUENCE = {"(2, 9, 8)": "(32, 512, 64)"}

#: For each module, every part of its text that names a size, and what stands for it.
SIZES: dict[str, dict[str, str]] = {
    "a hash of corners": {"(40, 2)": "(1 << 20, 2)", "% 32": "% 65536", "(32, 4)": "(65536, 4)"},
    "a hash of words": {"(40,)": "(1 << 22,)", "(17, 4)": "(99991, 4)"},
    "rows and columns of places": {"randint(0, 49, (6, 20))": "randint(0, 4096, (64, 4096))", "// 7": "// 64", "% 7": "% 64", "(7, 8)": "(64, 64)"},
    "bits of bytes": {"(6, 5)": "(16384, 256)", "(40, 20)": "(2048, 512)"},
    "whole steps": {**_ROWS, "rand(20)": "rand(2048)"},
    "words of four bits": {**_WORDS, "rand(24)": "rand(4096)"},
    "groups of four bits": {"arange(32) // 8": "arange(4096) // 128", "rand(4, 24)": "rand(32, 4096)", **_WORDS, "(24,)": "(4096,)"},
    "bytes and scales": _WIDE,
    "a book of weights": {k: _WIDE[k] for k in ("(6, 20)", "(24, 20)")},
    "a weight of length one": {k: _WIDE[k] for k in ("(6, 20)", "(24, 20)", "(24)")},
    "a standardised kernel": {**_DEEP, "(32, 8, 3, 3)": "(128, 64, 3, 3)"},
    "a low rank beside": {"(6, 20)": "(4096, 2048)", "(24, 20)": "(2048, 2048)", "(24, 4)": "(2048, 16)", "(4, 20)": "(16, 2048)"},
    "dice": {**_CLASSES, "one_hot(y, 5)": "one_hot(y, 8)"},
    "focal": {**_CLASSES, "rand(5)": "rand(8)"},
    "a share of right pixels": _CLASSES,
    "overlap of classes": {**_CLASSES, "arange(5)": "arange(8)"},
    "uncertain pixels": {k: _CLASSES[k] for k in ("(2, 5, 9, 8)",)},
    "a smooth cross entropy": {"(40, 7)": "(32768, 1000)", "randint(0, 7, (40,))": "randint(0, 1000, (32768,))", "rand(7)": "rand(1000)"},
    "quaternions": {"(40, 4)": "(1 << 22, 4)"},
    "colours": {"(2, 3, 6, 5)": "(32, 3, 512, 512)"},
    "norms of fours": {"(6, 20)": "(16384, 1024)", "(5, 4)": "(256, 4)"},
    "two experts": {"(6, 20)": "(8192, 1024)", "Linear(20, 2)": "Linear(1024, 2)", "Linear(20, 24)": "Linear(1024, 1024)"},
    "distances of points": {"(40, 3)": "(1 << 18, 3)", "(9, 3)": "(64, 3)", "(9, 4)": "(64, 4)"},
    "a vote of heads": {"(6, 20)": "(16384, 1024)", "(4, 5)": "(8, 128)"},
    "a mean of segments": {**_NODES, "zeros(6,": "zeros(4096,"},
    "a maximum of segments": {**{k: _NODES[k] for k in ("(40, 12)", "randint(0, 6, (40,))")}, "(6, 12)": "(4096, 128)", "(-1, 12)": "(-1, 128)"},
    "a softmax of segments": _NODES,
    "messages along edges": {"(40, 12)": "(65536, 128)", "Linear(12, 8)": "Linear(128, 64)", "rand(90)": "rand(1 << 19)", "randint(0, 40, (90,))": "randint(0, 65536, (1 << 19,))"},
    "a histogram": {"rand(6, 20)": "rand(4096, 4096)", "x * 4": "x * 64", "clamp(0, 3)": "clamp(0, 63)", "zeros(6, 4": "zeros(4096, 64"},
    "written tokens": {"(6, 5)": "(16384, 256)", "(1, 20)": "(1, 1024)", "(6, 20)": "(16384, 1024)", "randperm(20)[None, :5]": "randperm(1024)[None, :256]"},
    "a table with new rows": {"(2, 9, 20)": "(64, 512, 768)", "(9, 20)": "(512, 768)", "(3, 20)": "(3, 768)"},
    "a voxel grid": {"(40, 3)": "(1 << 21, 3)", "(4, 4, 4,": "(64, 64, 64,", "x * 4": "x * 64", "clamp(0, 3)": "clamp(0, 63)"},
    "bags of words": {"randint(0, 30, (6, 5))": "randint(0, 50000, (16384, 20))", "(30, 8": "(50000, 128"},
    "factors": {"randint(0, 30, (6, 5))": "randint(0, 100000, (16384, 39))", "(30, 8)": "(100000, 16)", "(30, 1)": "(100000, 1)"},
    "pairs below the diagonal": {"randint(0, 30, (6, 5))": "randint(0, 50000, (8192, 27))", "(30, 8)": "(50000, 64)", "(5, 5, -1)": "(27, 27, -1)"},
    "codes of vectors": {"(6, 20)": "(65536, 64)", "(17, 20)": "(1024, 64)"},
    "one of many experts": {"(6, 20)": "(65536, 256)", "Linear(20, 4)": "Linear(256, 64)", "one_hot(at, 4)": "one_hot(at, 64)", "(4, 8)": "(64, 256)"},
    "a few of many experts": {"(6, 20)": "(65536, 128)"},
    "windows that are rolled": {"(2, 4, 4, 8)": "(16, 56, 56, 96)", "(-1, -1), (1, 2)": "(-3, -3), (1, 2)", "(2, 2, 2, 2, 2, 8)": "(16, 8, 7, 8, 7, 96)",
                                "(8, 4, 8)": "(1024, 49, 96)", "(4, 4)": "(49, 49)", "randn(9)": "randn(169)", "randint(0, 9, (16,))": "randint(0, 169, (49 * 49,))"},
    "a slope of distances": {**_SEQUENCE, "arange(9)": "arange(512)"},
    "rotated pairs": {"(2, 9, 8)": "(8, 2048, 1024)", "arange(9)": "arange(2048)", "rand(4)": "rand(512)"},
    "a mask of minus infinity": {**_SEQUENCE, "(9, 9)": "(512, 512)"},
    "sums of a chunk": {"(3, 7, 5)": "(512, 64, 32)", "(3, 7)": "(512, 64)", ":3]": ":16]", "(7, 7)": "(64, 64)"},
    "attention without softmax": {"(2, 9, 8)": "(32, 1024, 64)"},
    "two forms and a matrix": {"(6, 10)": "(4096, 128)", "(4, 10, 10)": "(64, 128, 128)"},
    "more pixels": {"(2, 8, 6, 4)": "(8, 64, 128, 128)", "Conv2d(8, 12": "Conv2d(64, 12"},
    "fewer pixels": {**_IMAGE, "Conv2d(32, 32": "Conv2d(128, 128"},
    "shuffled channels": _IMAGE,
    "a larger image beside": {"(2, 8, 6, 4)": "(8, 32, 128, 128)"},
    "a sharper image": {"(2, 8, 6, 4)": "(8, 32, 128, 128)", "(9, 8)": "(256, 256)", "(8, 1, 1)": "(32, 1, 1)"},
    "a smaller image": {"(2, 8, 6, 4)": "(32, 3, 512, 640)", "(3, 2)": "(224, 224)", "(8, 1, 1)": "(3, 1, 1)"},
    "differences with a border": _IMAGE,
    "a blur with a mirror": {**_IMAGE, "groups=8": "groups=32", "(8, 1, 3, 3)": "(32, 1, 3, 3)"},
    "a circle of columns": {**_DEEP, "(32, 8, 3, 3)": "(64, 64, 3, 3)"},
    "a warped image": {**_IMAGE, "(2, 2, 6, 4)": "(16, 2, 128, 128)", "(6, 4, 2)": "(128, 128, 2)"},
    "a turned image": {**_IMAGE, "(2, 2, 3)": "(16, 2, 3)", "Linear(8, 6)": "Linear(32, 6)"},
    "points of a volume": {"(2, 9, 3)": "(8, 65536, 3)", "expand(2,": "expand(8,", "(1, 4, 3, 4, 5)": "(1, 32, 32, 64, 64)"},
    "channels side by side": {**_DEEP, "Conv2d(8, 32": "Conv2d(64, 128"},
    "means without gaps": _ROWS,
    "clipped norms": _ROWS,
    "places as numbers": {**_ROWS, "1, 20)": "1, 2048)", "arange(6)": "arange(8192)", "ones(20)": "ones(2048)"},
    "a memory that is written": {**_ROWS, "randn(10)": "randn(1024)"},
    "features of a torus": {"(6, 5)": "(65536, 32)", "(40, 8)": "(256, 64)"},
}  # fmt: skip

#: Calls in forward that make tensors on the CPU where they name no device.
_MADE = re.compile(r"torch\.(?:arange|zeros|ones|full|eye|linspace)\(")


def problem(name: str) -> str:
    """The module at GPU size, as a problem's text. Raises ``KeyError`` where a part is not in the module's text."""
    parts = list(MODULES[name])
    for old, new in SIZES[name].items():
        if not any(old in part for part in parts):
            raise KeyError(f"{name}: its text has no {old}")
        parts = [part.replace(old, new) for part in parts]
    forward, inputs, init = parts
    return source(_on_device(forward), inputs, init, ", ".join("xyz"[: inputs.count("torch.r")]))


def _on_device(forward: str) -> str:
    """The same with new tensors on the input's device."""
    for found in reversed(list(_MADE.finditer(forward))):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(forward[at], 0)
            at += 1
        forward = f"{forward[: at - 1]}, device=x.device{forward[at - 1 :]}"
    return forward
