"""Problems of other kinds: random operators, several outputs, integer and non-contiguous inputs, no batch."""

import pytest
import torch

from kgen.candidate import Candidate, Trust
from kgen.errors import DeviceError, ProblemError
from kgen.evaluator.correctness.reference import Reference
from kgen.problems.problem import Problem, load, read_problem
from kgen.protocol import Accuracy, Status

HEAD = "import torch\nimport torch.nn as nn\n\n"

DROPOUT = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 48)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.linear(x)) * 2

def get_inputs():
    return [torch.rand(96, 32)]
"""

MANY = HEAD + """
class Model(nn.Module):
    def __init__(self, size, *, scale=2.0):
        super().__init__()
        self.table = nn.Embedding(size, 16)
        self.scale = scale

    def forward(self, index, x, factor):
        y = self.table(index) * self.scale + x.t() * factor
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "n": 3}

def get_inputs():
    return [torch.randint(0, 10, (96,)), torch.rand(16, 96).t().contiguous().t(), 0.5]

def get_init_inputs():
    return [10]
"""

SQUARE = HEAD + """
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(24, 24), torch.rand(24, 24)]
"""

RELU = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(64, 32, 5)]
"""

CONSTANT = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x.sum(1, keepdim=True), dim=1)

def get_inputs():
    return [torch.rand(64, 32)]
"""


UNUSUAL = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(nn.Linear(16, 12))
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, x, windows, hidden, order, signal):
        y = self.linear(x)
        self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        placed = torch.empty_like(y)
        placed[order] = y
        scale = y.abs().amax(1, keepdim=True) / 127
        return (placed, windows.amax(2), hidden, self.mean, y.bfloat16(), torch.fft.fft(y), signal * 2,
                torch.round(y / scale).to(torch.int8), y.sum() / 0)

def get_inputs():
    return [torch.randn(64, 16), torch.randn(64, 40).unfold(1, 5, 2), torch.randn(64, 3), torch.randperm(64),
            torch.randn(64, 4, dtype=torch.complex64)]
"""


CAUSAL = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        scores = (x @ x.mT).masked_fill(torch.ones(12, 12).tril() == 0, float("-inf"))
        return scores.softmax(-1) @ x

def get_inputs():
    return [torch.randn(16, 12, 8)]
"""


@pytest.fixture
def on(tmp_path, evaluator_of):
    """An evaluator of a problem given as text."""

    def make(text, accuracy=Accuracy.FP32, mode=None, timed=False):
        path = tmp_path / "problem.py"
        path.write_text(text)
        return evaluator_of(read_problem(str(path), mode=mode), accuracy, timed)

    return make


def judged(evaluator, source, timed=False):
    candidate = Candidate(source, "by hand", {}, "cpu", origin=Trust.FOREIGN)
    return evaluator.evaluate(candidate, evaluator.builder().build(source), timed=timed)


def new(text):
    return text.replace("class Model(", "class ModelNew(")


@pytest.mark.parametrize("text, timed", [(DROPOUT, True), (MANY, True), (SQUARE, False), (RELU, False), (UNUSUAL, True)],
                         ids=["dropout", "many", "square", "relu", "unusual"])
def test_the_problems_own_module_is_right(on, text, timed):
    with on(text, timed=timed) as evaluator:
        evaluation = judged(evaluator, new(text), timed)
        assert evaluation.status is Status.OK, evaluation.reason
        assert (evaluation.timing is not None) == timed


def test_dropout_with_another_probability_is_wrong(on):
    with on(DROPOUT) as evaluator:
        assert judged(evaluator, new(DROPOUT).replace("0.3", "0.2")).status is Status.WRONG_VALUES


def test_a_wrong_part_of_several_outputs_is_found(on):
    with on(MANY) as evaluator:
        for before, after, status in [("y.sum(1)", "y.mean(1)", Status.WRONG_VALUES),
                                      ("y.argmax(1)", "y.argmin(1)", Status.WRONG_VALUES),
                                      ('"n": 3', '"n": 4', Status.WRONG_VALUES),
                                      ('"parts": (', '"parts": [', Status.WRONG_TYPE)]:
            source = new(MANY).replace(before, after)
            if status is Status.WRONG_TYPE:
                source = source.replace("y.argmax(1))", "y.argmax(1)]")
            assert judged(evaluator, source).status is status


def test_an_input_passed_through_shares_memory(on):
    with on(RELU) as evaluator:
        evaluation = judged(evaluator, new(RELU).replace("torch.relu(x)", "x.relu_()"))
        assert evaluation.status is Status.ALIASED_OUTPUT


def test_a_problem_with_a_constant_output_is_not_healthy(on):
    with on(CONSTANT) as evaluator:
        health = evaluator.health()
        assert "the mean" in health.passed_by and not health.ok


@pytest.mark.parametrize("output", ["x.argmax(1)", "x.square().mean()", "x.sum(1) > 16"])
def test_integers_and_single_numbers_are_no_trivial_answers(on, output):
    with on(RELU.replace("torch.relu(x)", output)) as evaluator:
        assert evaluator.health().passed_by == ()


#: In float64: how the library sums so few terms in float32 differs from processor to processor.
ROW_BY_ROW = "torch.cat([{scores}.softmax(-1) @ x[:, :i + 1] for x in [x.double()] for i in range(12)], 1).float()"


@pytest.mark.parametrize("scores, status", [
    ("(x[:, i:i + 1] @ x[:, :i + 1].mT)", Status.OK),
    ("(x[:, i:i + 1] @ x[:, :i + 1].mT).nan_to_num()", Status.WRONG_VALUES)])
def test_what_is_masked_need_not_be_read_where_it_is_not_finite(on, scores, status):
    source = new(CAUSAL).replace("scores.softmax(-1) @ x", ROW_BY_ROW.format(scores=scores))
    with on(CAUSAL) as evaluator:
        evaluation = judged(evaluator, source)
        assert evaluation.status is status, evaluation.reason


def test_a_maximum_that_leaves_nan_out_is_wrong(on):
    text = RELU.replace("torch.relu(x)", "x.amax(1)")
    with on(text) as evaluator:
        source = new(text).replace("x.amax(1)", "x.nan_to_num(-1e30, 1e38, -1e38).amax(1)")
        assert judged(evaluator, source).status is Status.WRONG_VALUES


def test_what_a_problem_does_not_hand_on_itself_must_be_new(on):
    source = new(UNUSUAL).replace("return (placed,", "x.copy_(x)\n        return (x[:, :12],")
    with on(UNUSUAL) as evaluator:
        assert judged(evaluator, source).status is Status.ALIASED_OUTPUT


def test_both_modes_are_judged_and_timed_together(on):
    with on(DROPOUT, mode="both", timed=True) as evaluator:
        evaluation = judged(evaluator, new(DROPOUT), timed=True)
        assert evaluation.status is Status.OK, evaluation.reason
        assert {row.case for row in evaluation.errors} >= {"as given (train)", "as given (eval)"}


def test_the_kernelbench_class_allows_a_tenth_of_a_thousandth(on):
    with on(RELU, Accuracy.KERNELBENCH) as evaluator:
        close, far = (new(RELU).replace("torch.relu(x)", f"torch.relu(x) + {d}") for d in (5e-5, 5e-4))
        assert judged(evaluator, close).status is Status.OK
        assert judged(evaluator, far).status is Status.WRONG_VALUES


def test_a_shape_that_depends_on_values_is_refused(on):
    with on(RELU.replace("torch.relu(x)", "x.flatten()[: int(x[0, 0, 0] * 10_000)]")) as evaluator:
        with pytest.raises(ProblemError, match="shape .* depends on the values"):
            evaluator.health()


@pytest.mark.parametrize("before,after", [
    ("return torch.relu(x)", "raise ValueError('no')"), ("torch.rand(64, 32, 5)", "torch.rand(64, 32, 5).double()"),
    ("def get_inputs():", "def get_inputs():\n    raise KeyError('x')"),
    ("return torch.relu(x)", "return {x.shape}"), ("[torch.rand(64, 32, 5)]", "torch.rand(64, 32, 5)"),
    ("def get_inputs():", "def get_init_inputs():\n    return [torch.float32]\n\ndef get_inputs():"),
])
def test_a_problem_that_is_wrong_itself_is_said_so(on, before, after):
    with pytest.raises(ProblemError, match="problem.py"):
        on(RELU.replace(before, after)).__enter__()


def test_tf32_is_refused_on_the_cpu(on):
    with pytest.raises(DeviceError, match="tf32"):
        on(RELU, Accuracy.TF32)


def test_rounding_leaves_infinities_as_they_are() -> None:
    """A mask of minus infinities would make everything behind it NaN, and say nothing of where errors show."""
    text = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        return x.masked_fill(x > 0, -torch.inf).softmax(-1)

def get_inputs():
    return [torch.randn(8, 16)]
"""
    reference = Reference(load(Problem("masked", "masked.py", text)), "cpu", 0)
    x = torch.randn(8, 16)
    exact, noisy = (reference.exact([x], {}, "eval", 0, noise=noise)[0] for noise in (False, True))
    assert noisy.isfinite().all() and not torch.equal(noisy, exact)
    assert torch.allclose(noisy, exact, rtol=1e-5)


def test_parameter_that_is_returned_keeps_its_values_while_others_are_loaded() -> None:
    text = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x, self.p[:2]

def get_inputs():
    return [torch.randn(8)]
"""
    reference = Reference(load(Problem("returned", "returned.py", text)), "cpu", 0)
    first = reference.eager([torch.ones(8)], {"p": torch.ones(3)}, "eval", 0)[0]
    _, views, _ = reference.looked_at([torch.ones(8)], {"p": torch.zeros(3)}, "eval")
    assert first[1].tolist() == [1.0, 1.0] and views == {0, 1}

LOSS = HEAD + """
class Model(nn.Module):
    def forward(self, x, y):
        return (x - y).square().mean()

def get_inputs():
    return [torch.rand(64, 500), torch.rand(64, 500)]
"""


@pytest.mark.parametrize("forward, status", [
    ("(x - y).square().mean()", Status.OK),
    ("(x - y).square().sum(0).mean() / 64", Status.OK),
    ("(x - y).square().mean() * (1 + 2.5e-6)", Status.WRONG_VALUES),
    ("(x.half() - y.half()).float().square().mean()", Status.WRONG_VALUES),
])
def test_a_loss_is_judged_over_several_inputs(on, forward, status):
    with on(LOSS) as evaluator:
        text = HEAD + f"class ModelNew(nn.Module):\n    def forward(self, x, y):\n        return {forward}\n"
        found = judged(evaluator, text)
        given = next(error for error in found.errors if error.case == "as given")
        assert found.status is status
        # Eight inputs are enough where one takes long, as on a busy machine, and the error is small.
        assert given.runs == 32 or given.used > 64 or given.runs == 8 and given.used <= 0.7


def test_flags_of_the_problems_file_reach_the_candidate(on):
    with on("import torch\ntorch.backends.cudnn.deterministic = True\n" + RELU, Accuracy.PYTORCH) as evaluator:
        assert evaluator.opened.flags == [False, True, False, True]


@pytest.mark.parametrize("end,said", [("os._exit(0)", "left with exit code 0"), ("os.kill(os.getpid(), 11)", "killed by SIGSEGV")])
def test_a_problem_whose_forward_ends_its_process_is_refused(on, end, said):
    """Capture, which runs forward on no values, does not see it."""
    where = f"import os\n        isinstance(x, torch._subclasses.FakeTensor) or {end}\n        "
    with pytest.raises(ProblemError, match=f"its own code ended the process that ran it: its process {said}"):
        on(RELU.replace("return torch.relu(x)", f"{where}return torch.relu(x)")).__enter__()
