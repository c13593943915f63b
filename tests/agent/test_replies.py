"""Replies of language models: the proposals that are read from them, and what is wrong with the others."""

from __future__ import annotations

import pytest

from kgen.agent import replies
from kgen.agent.proposer import FREE, KGEN

FILE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def test_file_in_a_block_is_a_free_proposal() -> None:
    [found] = replies.read(f"Here it is:\n\n```python\n{FILE}```\nIt is fast.")
    assert (found.language, found.text, found.fault) == (FREE, FILE, "")


def test_last_file_of_several_counts() -> None:
    [found] = replies.read(f"A draft:\n```python\n{FILE}# draft\n```\nThe end:\n```python\n{FILE}```")
    assert found.text == FILE


def test_file_without_a_block_counts() -> None:
    [found] = replies.read(FILE)
    assert found.text == FILE and not found.fault


def test_thoughts_do_not_count() -> None:
    [found] = replies.read(f"<think>```python\n{FILE}# thought\n```</think>\n```python\n{FILE}```")
    assert found.text == FILE


def test_typed_choices_are_read() -> None:
    found = replies.read('```json\n[{"plan": 1, "params": {"k0.block": 256}}, {"plan": "row[softmax]", "why": "short"}]\n```')
    assert [(p.language, p.plan, dict(p.params), p.fault) for p in found] == [(KGEN, 1, {"k0.block": 256}, ""), (KGEN, "row[softmax]", {}, "")]


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("I cannot do that.", "no block of code"),
        ("", "no block of code"),
        (f"```python\n{FILE}", "cut off"),
        ("```python\nprint(1)\n```", "no block of code has a class ModelNew"),
        (f"```python\n{FILE}\n{FILE}```", "2 classes ModelNew"),
        ('```json\n{"plan": 1,}\n```', "is no JSON"),
        ('```json\n{"params": {}}\n```', "with plan and params"),
        ('```json\n{"plan": true}\n```', "plan is the name"),
        ('```json\n{"plan": 1, "params": {"a": [1]}}\n```', "params is an object"),
        ('```json\n{"plan": 1, "code": "rm"}\n```', "'code' is no field"),
    ],
)
def test_reply_that_proposes_nothing_says_why(reply: str, fault: str) -> None:
    [found] = replies.read(reply)
    assert fault in found.fault and "\n" not in found.fault


def test_reply_that_was_ended_says_so() -> None:
    assert "cut off" in replies.read("I think", cut=True)[0].fault


def test_repetition_is_found_and_code_is_not() -> None:
    assert replies.loops("x = 1\n" * 2000) and replies.loops("the same again. " * 400)
    assert not replies.loops("".join(f"x{n} = {n}\n" for n in range(2000))) and not replies.loops("=" * 200)
