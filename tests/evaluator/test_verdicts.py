"""What becomes of right and of wrong candidates."""

import pytest
from candidates import KERNEL, plain, render

from kgen.evaluator.strict.timing_anomalies import REMEASURED_ROUNDS
from kgen.evaluator.timing.measure import SCREEN_BLOCKS
from kgen.protocol import Status

TERM = "row[c] = expf(row[c] - largest);"

#: Name: (source, status, what its reason says).
WRONG = {
    "raises": (plain("raise ValueError('no')"), Status.RUNTIME_ERROR, "ValueError: no"),
    "raises SystemExit": (plain("sys.exit(0)"), Status.RUNTIME_ERROR, "SystemExit"),
    "leaves": (plain("os._exit(0)"), Status.CRASHED, "left with exit code 0"),
    "null pointer": (render(before="_kernel(None, 1, 1)"), Status.CRASHED, "SIGSEGV"),
    "kills itself": (plain("os.kill(os.getpid(), 6)"), Status.CRASHED, "SIGABRT"),
    "kills itself outright": (plain("os.kill(os.getpid(), 9)"), Status.CRASHED, "SIGKILL"),
    "no memory": (plain("torch.empty(1 << 44)"), Status.OUT_OF_MEMORY, "memory"),
    "wrong shape": (plain("return y[:, :-1]"), Status.WRONG_SHAPE, "shape"),
    "wrong dtype": (plain("return y.double()"), Status.WRONG_TYPE, "float64"),
    "wrong container": (plain("return [y]"), Status.WRONG_TYPE, "list"),
    "nothing": (plain("return None"), Status.WRONG_TYPE, "value"),
    "tensor subclass": (plain("return y.as_subclass(type('Lazy', (torch.Tensor,), {}))"), Status.WRONG_TYPE, "Lazy"),
    "constant": (plain("return torch.full_like(y, 1 / y.shape[1])"), Status.WRONG_VALUES, "as given"),
    "zeros": (plain("return torch.zeros_like(y)"), Status.WRONG_VALUES, "as given"),
    "half precision": (plain("return y.half().float()"), Status.WRONG_VALUES, "as given"),
    "tanh for erf": (plain("return torch.softmax(F.gelu(self.linear(x), approximate='tanh'), dim=1)"),
                     Status.WRONG_VALUES, "x what is allowed"),
    "no maximum subtracted": (plain("e = torch.exp(F.gelu(self.linear(x)))\nreturn e / e.sum(1, keepdim=True)"),
                              Status.WRONG_VALUES, "not finite"),
    "one wrong row": (plain("y[-1] *= 1.01\nreturn y"), Status.WRONG_VALUES, "as given"),
    "batch baked in": (plain("return y if x.shape[0] in (160, 64) else y * 2"), Status.WRONG_VALUES, "batch"),
    "unwritten element": (plain("z = torch.empty_like(y)\nz[:, 1:] = y[:, 1:]\nreturn z"), Status.WRONG_VALUES, ""),
    "unwritten element of a kernel": (render(kernel=KERNEL.replace(TERM, "if (c != 5 || r != 3) " + TERM)),
                                      Status.WRONG_VALUES, ""),
    "mutated input": (plain("x[0, 0] += 1\nreturn y"), Status.MUTATED_INPUT, "input 0"),
    "mutated parameter": (plain("b = self.linear.bias.data\nif self.kept != b._version:\n"
                                "    b[0] = torch.nextafter(b[0], torch.tensor(1.0))\n    self.kept = b._version\n"
                                "return y"), Status.MUTATED_INPUT, "linear.bias"),
    "same output twice": (plain("if self.kept is None or self.kept.shape != y.shape:\n    self.kept = y.clone()\n"
                                "self.kept.copy_(y)\nreturn self.kept"), Status.ALIASED_OUTPUT, "earlier"),
    "stale fold": (plain("if self.kept is None:\n    self.kept = self.linear.weight.detach().clone()\n"
                         "return torch.softmax(F.gelu(F.linear(x, self.kept, self.linear.bias)), dim=1)"),
                   Status.WRONG_VALUES, "other weights"),
    "random": (plain("return y * (1 + 1e-3 * torch.rand(1, generator=RNG))").replace(
        "class ModelNew", "RNG = torch.Generator()\n\n\nclass ModelNew"), Status.WRONG_VALUES, ""),
    "changes a flag": (plain("torch.set_num_threads(1)\nreturn y"), Status.SUSPICIOUS, "threads"),
    "no ModelNew": ("x = 1\n", Status.LOAD_ERROR, "ModelNew"),
    "syntax error": ("def\n", Status.LOAD_ERROR, "SyntaxError"),
    "constructor raises": (plain("return y").replace("self.kept = None", "raise KeyError('k')"), Status.LOAD_ERROR,
                           "KeyError"),
}


def test_a_foreign_output_with_other_strides_has_a_label(judge):
    evaluation = judge(plain("return y.t().contiguous().t()"))
    assert (evaluation.status, "strides differ from PyTorch's" in evaluation.labels) == (Status.OK, True), evaluation.reason


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_candidate_gets_its_status_and_reason(judge, name):
    source, status, reason = WRONG[name]
    evaluation = judge(source)
    assert (evaluation.status, reason in evaluation.reason) == (status, True), evaluation.reason
    assert evaluation.timing is None or status is Status.SUSPICIOUS


def test_an_honest_candidate_is_ok_and_timed(judge):
    evaluation = judge(render())
    assert evaluation.status is Status.OK, evaluation.reason
    assert len(evaluation.timing.blocks) in (SCREEN_BLOCKS, REMEASURED_ROUNDS)  # a busy machine causes anomalies
    assert evaluation.error_ratio < 10
    assert all(row.ok for row in evaluation.errors)


def test_the_library_itself_is_ok(judge):
    evaluation = judge(plain("return y"))
    assert evaluation.status is Status.OK, evaluation.reason


def test_an_endless_loop_times_out(judge, evaluator):
    from dataclasses import replace

    before, evaluator.limits = evaluator.limits, replace(evaluator.limits, validate_seconds=1.0)
    try:
        evaluation = judge(plain("while True: x = x + 0"))
    finally:
        evaluator.limits = before
    assert evaluation.status is Status.TIMEOUT
    assert "be validated" in evaluation.reason


def test_a_file_of_other_parameters_runs_under_kernelbenchs_protocol(judge):
    source = plain("return y").replace("self.linear(x)", "self.other(x)").replace("self.linear =", "self.other =")
    evaluation = judge(source)
    assert evaluation.status is Status.OK, evaluation.reason
    assert "kernelbench protocol" in evaluation.labels


def test_a_file_from_outside_that_builds_in_its_own_way_is_built_in_the_sandbox(judge):
    source = render().replace('NAME = "', 'NAME = "" + "')
    assert judge(source).status is Status.OK


def test_a_compiler_error_is_a_build_error_with_the_compilers_first_error(judge):
    evaluation = judge(render(kernel="extern \"C\" void gelu_softmax(float* x) { this is wrong; }"))
    assert evaluation.status is Status.BUILD_ERROR
    assert "error" in evaluation.reason
