"""Models as the package transformers builds them: all plan with kernels, and a control keeps eager's attention."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.problems.problem import read_problem
from kgen.tuning.plan import plan

FOLDER = Path(__file__).parent.parent.parent / "problems" / "models"
TEXT = {"hidden": "32", "heads": "2", "layers": "1", "length": "8", "batch_size": "2", "vocabulary": "50"}
WITHOUT_TEXT = {name: TEXT[name] for name in ("hidden", "heads", "layers", "batch_size")}
SIZES = {
    "bert": TEXT,
    "gpt2": TEXT,
    "llama_blocks": TEXT | {"heads": "4", "kv_heads": "2"},
    "t5_encoder": TEXT,
    "vit": WITHOUT_TEXT | {"image": "16", "patch": "8"},
    "whisper_encoder": WITHOUT_TEXT | {"length": "8", "mels": "4"},
}
#: Calls that stay with the library beside attention, which may: the first convolution, and masks of padded tokens.
LEFT = {
    "llama_blocks": {"aten.linear.default"},  # queries, keys and values as one product, which may be the library's
    "bert": {"aten.arange.default", "aten.index.Tensor"},
    "t5_encoder": {"aten.arange.default", "aten.index.Tensor", "aten.embedding.default", "aten.to.device"},  # of its mask
    "vit": {"aten.conv2d.default"},
}
ATTENTION = "aten.scaled_dot_product_attention.default"


def test_every_model_is_listed() -> None:
    assert set(SIZES) == {path.stem for path in FOLDER.glob("*.py")}


#: Those that always run: one of rotated and grouped heads, and one of images.
ALWAYS = ("llama_blocks", "vit")


@pytest.mark.parametrize("name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.exhaustive) for name in SIZES])
def test_model_has_kernels_for_all_but_the_named_calls(name: str) -> None:
    planned = plan(read_problem(str(FOLDER / f"{name}.py"), SIZES[name], "eval"), "cpu")
    assert set(planned.library_calls) - {ATTENTION} <= LEFT.get(name, set())
    assert planned.library_calls.count(ATTENTION) in (0, int(SIZES[name]["layers"])) and planned.modes[0].best[0].plan.kernels
