"""Replies of language models: the proposals that are read from them, and what is wrong with the others."""

from __future__ import annotations

import json

import pytest

from kgen.agent import replies
from kgen.agent.proposer import FREE, KGEN, TEMPLATE, from_json
from kgen.agent.sandboxed import TemplateFault, rendered
from kgen.compiler.fusion.chosen import Cut

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


def test_chosen_kernels_are_read_and_kept() -> None:
    [found] = replies.read('```json\n{"kernels": [["linear", "relu"], ["softmax"]], "schedules": ["", "row"], "expressions": {"relu": "max(x, 0)"}, "params": {"k1.block": 64}}\n```')
    assert found.cut == Cut((("linear", "relu"), ("softmax",)), ("", "row"), (), (("relu", "max(x, 0)"),)) and dict(found.params) == {"k1.block": 64} and not found.fault
    assert from_json(json.loads(json.dumps(found.to_json()))) == found


def test_template_with_a_space_is_a_proposal_for_each_combination() -> None:
    found = replies.read(f'```python\n{FILE}# {{{{ block }}}}\n```\n```json\n{{"space": {{"block": [1, 2], "fast": [true, false]}}}}\n```')
    assert {(p.language, p.text, p.fault) for p in found} == {(TEMPLATE, FILE + "# {{ block }}\n", "")}
    assert [dict(p.params) for p in found] == [{"block": b, "fast": f} for b in (1, 2) for f in (True, False)]


def test_template_that_python_cannot_parse_is_read() -> None:
    [found] = replies.read('```\n{% set n = 2 %}\nclass ModelNew(M):\n    x = {{ n * k }}\n```\n```json\n{"space": {"k": [1]}}\n```')
    assert found.language == TEMPLATE and not found.fault


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
        ('```json\n{"plan": 1, "kernels": [["a"]]}\n```', "or with kernels"),
        ('```json\n{"kernels": ["linear"]}\n```', "kernels is a list"),
        ('```json\n{"kernels": []}\n```', "kernels is a list"),
        ('```json\n{"kernels": [["a"]], "expressions": ["x"]}\n```', "expressions is an object"),
        ('```json\n{"kernels": [["a"]], "schedules": "a"}\n```', "kernels is a list"),
        ('```json\n{"plan": true}\n```', "plan is the name"),
        ('```json\n{"plan": 1, "params": {"a": [1]}}\n```', "params is an object"),
        ('```json\n{"space": {"a": [1]}}\n```', "needs a template"),
        (f'```python\n{FILE}```\n```json\n{{"space": {{"a": 1}}}}\n```', "space is an object with a list"),
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


def test_template_is_rendered_with_its_parameters() -> None:
    assert rendered("{% if fast %}n = {{ block * 2 }}\n{% endif %}", {"fast": True, "block": 4}) == "n = 8\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{{ blok }}", "'blok' is undefined"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError"),
        ("{{ 'x' * 3000000000 }}", "MemoryError"),
        ("{{ 'x' * 2000000 }}", "more than 1048576 characters"),
    ],
)
def test_template_that_does_harm_is_refused(text: str, fault: str) -> None:
    with pytest.raises(TemplateFault, match=fault) as raised:
        rendered(text, {"block": 1})
    assert "\n" not in str(raised.value)
