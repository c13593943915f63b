"""A small history to report on: two plans with parameters, two sweeps, finalists and failures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from samples import Filled, evaluation, make_final, timing

from kgen.candidate import Candidate, ParamValue, Plan, Rejection
from kgen.protocol import Depth, Status

_PLANS = (
    Plan.of_mode([("", ["linear"]), ("inner_reduction", ["gelu", "softmax"])]),
    Plan.of_mode([("", ["linear"]), ("pointwise", ["gelu"]), ("inner_reduction", ["softmax"])]),
)
BY_NAME = {plan.name: plan for plan in _PLANS}
FUSED, APART = BY_NAME
ROOFLINE = {
    "flops": 2e9,
    "nbytes": 1e7,
    "copy_gbytes_per_second": 4000.0,
    "float32_tflops": 50.0,
    "tf32_tflops": 400.0,
    "float16_tflops": 800.0,
}


@dataclass
class History(Filled):
    """A sweep that is filled with candidates of chosen plans, parameters and figures."""

    def start(self, **arguments: int) -> str:
        return self.database.start_sweep(
            problem=self.problem,
            environment=self.environment,
            accuracy=self.accuracy,
            device=self.device,
            arguments=arguments,
            combinations=100,
            budget=50,
            roofline=ROOFLINE,
        )

    def add(
        self,
        speedup: float | None,
        plan: str = FUSED,
        status: Status = Status.OK,
        error: float = 1.0,
        reason: str = "right",
        text: str | None = None,
        **params: ParamValue,
    ) -> Candidate:
        """Judge a candidate; its errors are ``error`` times PyTorch's."""
        named = {f"k0.{name}": value for name, value in params.items()}
        source = text or f"# {plan} {named} {speedup} {self.accuracy}"
        of = Candidate(source, plan, named, "cpu", 1, plan_data=BY_NAME.get(plan, Plan()))
        judged = evaluation(of, status, self.accuracy, reason)
        figures = tuple(replace(item, rms=error * (item.eager_rms or 0.0)) for item in judged.errors)
        self.database.add_evaluation(
            self.sweep,
            of,
            replace(judged, errors=figures),
            environment_id=self.environment.id,
            median_ms=3.0 / speedup if speedup else None,
            speedup=speedup,
        )
        return of

    def add_baselines(self, compile_ms: float, depth: Depth = Depth.SCREEN) -> None:
        """Add timings of the baselines to the sweep."""
        timings = [timing("eager", (4.0,), depth=depth), timing("compile", (compile_ms,), depth=depth)]
        self.database.add_timings(self.sweep, self.environment.id, self.accuracy, timings)

    def make_final(self, of: Candidate, low: float, speedup: float, high: float, tie: bool = False) -> None:
        make_final(self.database, self.sweep, of, low, speedup, high, tie)


def fill(history: History) -> None:
    """Two sweeps of 24 candidates in all, three finalists, four failures of three kinds, and one rejection."""
    for block in (128, 256, 512):
        for vec in (1, 2, 4):
            history.add(0.8 + block / 2000 + vec / 100, block=block, vec=vec)
    history.sweep = history.start(number=2)
    for block in (128, 256, 512):
        history.add(0.7 + block / 2000, APART, block=block)
    for error, text in ((3.0, "a"), (9.0, "b")):
        history.add(None, status=Status.WRONG_VALUES, error=error, reason=f"too wrong: {text} < &", text=text)
    history.add(None, status=Status.CRASHED, reason="signal 11", text="c")
    history.add(None, status=Status.BUILD_ERROR, reason="no such header", text="d")
    kernel = '"""</script> & a docstring."""\nCUDA_SOURCE = r"""\n__global__ void f(float* x) {}\n"""\nvalue = 1 < 2\n'
    best = history.add(1.3, error=0.5, text=kernel, block=512, vec=4)
    history.make_final(best, 1.25, 1.3, 1.35)
    history.make_final(history.add(1.2, block=512, vec=2, text="second"), 1.15, 1.2, 1.22)
    history.make_final(history.add(0.9, APART, block=256, text="third"), 0.85, 0.9, 0.95)
    history.add_baselines(3.0)
    history.add_baselines(3.0, Depth.FINAL)
    ruled_out = Rejection(FUSED, {"k0.vec": 8}, "aligned", "rows are too short")
    history.database.add_rejections(history.sweep, [ruled_out])
    history.database.finish_sweep(history.sweep, "finished", 12.0, best.id)
