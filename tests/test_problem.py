"""Problems: finding and reading files, replacing constants, and what is wrong with a file, in one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.errors import OverrideError, ProblemError
from kgen.problems.problem import Problem, find_problem, load, problem_files, read_problem, resolve_mode, sizes

TEXT = """\
import torch
import torch.nn as nn

batch_size = 4
width, depth = 10, 3
ratio: float = 0.5
wide = 2 * width
shape = (width, 2)
name = "a"
lengths = (1, 2)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, wide)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.zeros(batch_size, width)]


def get_init_inputs():
    return [width]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str = TEXT, name: str = "mine.py") -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def one_line(error: pytest.ExceptionInfo[ProblemError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# Finding


def test_path_is_found(folder: Path) -> None:
    assert find_problem(write(folder)) == folder / "mine.py"


def test_name_is_found_in_the_folder_problems_of_here_first(folder: Path) -> None:
    write(folder, name="problems/linear_gelu_softmax.py")
    assert find_problem("linear_gelu_softmax") == Path("problems/linear_gelu_softmax.py")


def test_name_is_found_among_the_packaged_ones(folder: Path) -> None:
    assert find_problem("linear_gelu_softmax").name == "linear_gelu_softmax.py"


def test_files_that_begin_with_an_underscore_are_no_problems(folder: Path) -> None:
    write(folder, name="problems/_helper.py")
    assert "_helper" not in problem_files()


def test_unknown_name_is_answered_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(ProblemError, match="linear_gelu_softmax") as error:
        find_problem("no_such_problem")
    assert "no_such_problem" in one_line(error)


def test_unknown_name_is_answered_with_a_few_names_the_nearest_first(folder: Path) -> None:
    for number in range(20):
        write(folder, name=f"problems/problem_{number}.py")
    with pytest.raises(ProblemError, match=r"names \(problem_17, .* more: kgen problems") as error:
        find_problem("problen_17")
    assert len(one_line(error)) < 300


def test_folder_is_no_problem(folder: Path) -> None:
    with pytest.raises(ProblemError, match="is a folder"):
        find_problem(str(folder))


# Reading


def test_name_is_the_stem_of_the_file(folder: Path) -> None:
    assert read_problem(write(folder)).name == "mine"


def test_syntax_error_is_told_with_its_line(folder: Path) -> None:
    with pytest.raises(ProblemError, match=r"mine\.py:2: syntax error") as error:
        read_problem(write(folder, "x = 1\ny = = 2\n"))
    one_line(error)


def test_null_bytes_are_no_python(folder: Path) -> None:
    with pytest.raises(ProblemError, match="syntax error|is not Python source"):
        read_problem(write(folder, "x = 1\0\n"))


def test_file_that_is_no_text_cannot_be_read(folder: Path) -> None:
    (folder / "bytes.py").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ProblemError, match="cannot be read"):
        read_problem(str(folder / "bytes.py"))


def test_file_without_a_model_is_refused(folder: Path) -> None:
    with pytest.raises(ProblemError, match=r"has no class Model\(nn.Module\)"):
        read_problem(write(folder, TEXT.replace("class Model", "class Other")))


def test_file_without_inputs_is_refused(folder: Path) -> None:
    with pytest.raises(ProblemError, match=r"has no function get_inputs\(\)"):
        read_problem(write(folder, TEXT.replace("def get_inputs", "def inputs")))


def test_same_text_under_another_name_is_the_same_problem(folder: Path) -> None:
    assert read_problem(write(folder)).id == read_problem(write(folder, name="other.py")).id


def test_mode_makes_another_problem(folder: Path) -> None:
    path = write(folder)
    assert read_problem(path, mode="train").id != read_problem(path, mode="eval").id


def test_override_makes_another_problem(folder: Path) -> None:
    path = write(folder)
    assert read_problem(path, {"batch_size": "8"}).id != read_problem(path).id


def test_override_with_the_same_value_is_the_same_problem(folder: Path) -> None:
    path = write(folder)
    assert read_problem(path, {"batch_size": "4"}) == read_problem(path)


def test_title_shows_what_was_overridden(folder: Path) -> None:
    problem = read_problem(write(folder), {"width": "7", "batch_size": "8"})
    assert problem.title == "mine(batch_size=8, width=7)"


def test_both_modes_are_train_and_then_eval() -> None:
    assert Problem("p", "p.py", "", (), "both").modes == ("train", "eval")


# Overriding


def constants(path: str, **overrides: str) -> dict[str, object]:
    return vars(load(read_problem(path, overrides)).module)


def test_constants_that_are_literals_can_be_replaced() -> None:
    assert sizes(TEXT) == {
        "batch_size": 4, "width": 10, "depth": 3, "ratio": 0.5, "name": "a", "lengths": (1, 2),
    }  # fmt: skip


def test_constant_derived_from_an_overridden_one_follows(folder: Path) -> None:
    found = constants(write(folder), width="7")
    assert (found["wide"], found["shape"]) == (14, (7, 2))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch_size", "8", 8),
        ("depth", "5", 5),
        ("ratio", "0.25", 0.25),
        ("name", "'b c'", "b c"),
        ("lengths", "(3, 4, 5)", (3, 4, 5)),
        ("batch_size", "-1", -1),
    ],
)
def test_override_replaces_the_value(folder: Path, name: str, text: str, value: object) -> None:
    assert constants(write(folder), **{name: text})[name] == value


def test_one_name_of_a_tuple_leaves_the_other_alone(folder: Path) -> None:
    found = constants(write(folder), width="7777")
    assert (found["width"], found["depth"]) == (7777, 3)


def test_both_names_of_a_tuple_are_replaced(folder: Path) -> None:
    found = constants(write(folder), width="7", depth="12345")
    assert (found["width"], found["depth"]) == (7, 12345)


def test_names_that_are_assigned_together_take_one_value(folder: Path) -> None:
    file = write(folder, TEXT + "\nheight = length = 128\n")
    found = constants(file, height="32", length="32")
    assert (found["height"], found["length"]) == (32, 32)
    with pytest.raises(OverrideError, match="-D length=128: height and length are assigned one value together; give both the same"):
        constants(file, height="32", length="128")


def test_last_assignment_is_the_one_replaced(folder: Path) -> None:
    found = constants(write(folder, TEXT + "\nbatch_size = 5\n"), batch_size="6")
    assert found["batch_size"] == 6


def test_text_that_is_not_ascii_is_replaced_at_the_right_place(folder: Path) -> None:
    found = constants(write(folder, 'greeting = "ä ö ü"; length = 3\n' + TEXT), length="4")
    assert (found["greeting"], found["length"]) == ("ä ö ü", 4)


def test_unknown_name_is_refused_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(OverrideError, match=r"no such module-level constant \(there are: batch_size, width"):
        read_problem(write(folder), {"hight": "1"})


@pytest.mark.parametrize(
    ("name", "text"), [("batch_size", "8.0"), ("batch_size", "True"), ("ratio", "1"), ("lengths", "3")]
)
def test_value_of_another_type_is_refused(folder: Path, name: str, text: str) -> None:
    with pytest.raises(OverrideError, match="the constant is of type") as error:
        read_problem(write(folder), {name: text})
    one_line(error)


@pytest.mark.parametrize("text", ["", "eight", "1 +", "__import__('os')"])
def test_value_that_is_no_literal_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(OverrideError, match="not a Python literal"):
        read_problem(write(folder), {"batch_size": text})


def test_computed_constant_is_refused_with_what_it_is_made_of(folder: Path) -> None:
    with pytest.raises(OverrideError, match=r"computed \(2 \* width\)"):
        read_problem(write(folder), {"wide": "4"})


def test_arithmetic_of_numbers_is_replaced_as_a_whole(folder: Path) -> None:
    path = write(folder, TEXT.replace("batch_size = 4", "batch_size = 2 * 2").replace("(1, 2)", "(2**3 + 1, 2)"))
    source = read_problem(path, {"batch_size": "8", "lengths": "(9, 6)"}).source
    assert "batch_size = 8\n" in source and "lengths = (9, 6)\n" in source


# Loading


def test_error_of_the_file_is_one_line_with_its_place(folder: Path) -> None:
    problem = read_problem(write(folder, TEXT + "\nx = 1 / 0\n"))
    with pytest.raises(ProblemError, match=r"mine\.py:29: the file raised ZeroDivisionError") as error:
        load(problem)
    one_line(error)


def test_inputs_that_raise_are_one_line_with_their_place(folder: Path) -> None:
    loaded = load(read_problem(write(folder, TEXT.replace("torch.zeros(batch", "torch.zeros(-batch"))))
    with pytest.raises(ProblemError, match=r"mine\.py:23: get_inputs\(\) raised RuntimeError") as error:
        loaded.inputs()
    one_line(error)


def test_constructor_that_raises_is_one_line_with_its_place(folder: Path) -> None:
    loaded = load(read_problem(write(folder, TEXT.replace("super().__init__()", "raise ValueError('no\\nway')"))))
    with pytest.raises(ProblemError, match=r"mine\.py:15: Model\(\.\.\.\) raised ValueError: no way"):
        loaded.model()


def test_output_of_the_file_goes_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(read_problem(write(folder, "print('made')\n" + TEXT)))
    assert capsys.readouterr() == ("", "made\n")


def test_exit_of_the_file_is_an_error_of_the_file(folder: Path) -> None:
    with pytest.raises(ProblemError, match="the file raised SystemExit"):
        load(read_problem(write(folder, TEXT + "\nraise SystemExit(0)\n")))


def test_model_without_arguments_needs_no_init_inputs(folder: Path) -> None:
    text = TEXT.replace("def __init__(self, width):", "def __init__(self):")
    loaded = load(read_problem(write(folder, text[: text.index("def get_init_inputs")])))
    assert loaded.init_inputs() == [] and loaded.model().linear.out_features == 20


@pytest.mark.parametrize(("line", "mode"), [("", "train"), ("        self.eval()\n", "eval")])
def test_mode_is_the_one_that_the_constructor_leaves(folder: Path, line: str, mode: str) -> None:
    text = TEXT.replace("nn.Linear(width, wide)\n", f"nn.Linear(width, wide)\n{line}")
    loaded = load(read_problem(write(folder, text)))
    assert resolve_mode(loaded, loaded.model()).problem.mode == mode


def test_mode_asked_for_wins(folder: Path) -> None:
    loaded = load(read_problem(write(folder), mode="both"))
    assert resolve_mode(loaded, loaded.model()).problem.mode == "both"
