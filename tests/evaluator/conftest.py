"""One evaluator for the tests of this folder: small sizes, the CPU with a warm cache, eager as the only baseline."""

import pytest
from lending import Lender

from kgen.candidate import Candidate, Trust
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Limits

SIZES = {"batch_size": "160", "in_features": "64", "out_features": "96"}


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def problem():
    return read_problem("linear_gelu_softmax", SIZES)


@pytest.fixture(scope="session")
def notices():
    """What the evaluator told people."""
    return []


@pytest.fixture(scope="session")
def evaluator(home, problem, notices):
    limits = Limits(load_seconds=20, validate_seconds=20, time_seconds=20, host_bytes=4 << 30)
    with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=home, limits=limits,
                   baselines=("eager",), notice=notices.append, cache="warm") as running:
        yield running


@pytest.fixture(scope="session")
def evaluator_of(home):
    """Makes evaluators of other problems, which share a fork server. The cache is warm; where candidates are timed, eager is the only baseline."""
    lender = Lender()
    yield lambda problem, accuracy=Accuracy.FP32, timed=False: lender.lend(Evaluator(
        problem, device="cpu", accuracy=accuracy, home=home, baselines=("eager",) if timed else (), cache="warm"))
    lender.close()


@pytest.fixture(scope="session")
def builder(evaluator):
    return evaluator.builder()


@pytest.fixture(scope="session")
def judge(evaluator, builder):
    """Build and evaluate a source; its evaluation."""

    def run(source):
        candidate = Candidate(source, "by hand", {}, "cpu", origin=Trust.FOREIGN)
        return evaluator.evaluate(candidate, builder.build(source))

    return run


@pytest.fixture
def sandboxed(judge, notices):
    """Skips a test where the system does not allow all of the sandbox."""
    judge("x = 1")
    missing = [text for text in notices if "not allow" in text]
    if missing:
        pytest.skip(missing[0])
