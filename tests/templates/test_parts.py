"""Files of many kernels have parts, which a build compiles beside each other."""

from __future__ import annotations

import re
from dataclasses import replace

from networks import NETWORK, network

from kgen.codegen.parts import FEWEST, in_parts
from kgen.devices.hardware import for_arch
from kgen.evaluator.candidates.build import read_extension
from kgen.protocol import Accuracy
from kgen.tuning.capturing import capture_here
from kgen.tuning.design import Design
from kgen.tuning.network_tasks import opening

#: Layers of different sizes: each has a function of its own.
PYRAMID = NETWORK.replace("nn.Linear(32, 32) for _ in range(11)", "nn.Linear(32 + 4 * n, 36 + 4 * n) for n in range(11)").replace(
    "nn.Linear(32, 10)", "nn.Linear(76, 10)")  # fmt: skip


def test_few_kernels_are_one_part() -> None:
    assert len(in_parts(["kernel"] * (FEWEST - 1))) == 1


def test_parts_have_all_texts_in_their_order_and_about_equal_lengths() -> None:
    texts = [f"{number:03}" + "x" * (200 if number % 7 else 2000) for number in range(40)]
    parts = in_parts(texts)
    assert "\n\n".join(parts) == "\n\n".join(texts)
    assert len(parts) > 8 and max(map(len, parts)) < 2 * sum(map(len, texts)) / len(parts) + 2000


def test_each_launcher_stands_in_one_part_and_is_declared_for_the_part_that_launches() -> None:
    design = Design(*capture_here(network(PYRAMID), "cpu"), replace(for_arch("sm_90"), name="a GPU"), Accuracy.PYTORCH)
    (first, *_) = opening(design)
    extension = read_extension(design.candidate(first).source)
    made = re.findall(r'^extern "C" int (\w+)\((.*)\) \{$', extension.cuda_source, re.MULTILINE)
    declared = re.findall(r'^extern "C" int (\w+)\((.*)\);$', extension.cuda_source, re.MULTILINE)
    assert len(declared) >= FEWEST and set(declared) <= set(made) and len(dict(made)) == len(made)
    guards = re.findall(r"^#if !defined\(PART\) \|\| PART == (\d+)$", extension.cuda_source, re.MULTILINE)
    assert sorted(map(int, guards)) == [*range(extension.parts)] and extension.parts > 2
