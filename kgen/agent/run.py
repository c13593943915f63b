"""A run of a proposer on one problem: rounds of question, proposals and verdicts, then the finals of the fastest.

Every answer is in the store before its proposals are judged, and every verdict as soon as it is there. A run that was
killed goes on: stored answers are not asked for again.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, Sequence

from kgen import paths
from kgen.agent.proposer import (
    KGEN,
    REFUSED,
    TEMPLATE,
    Context,
    KernelChoices,
    Operators,
    PlanChoices,
    Proposal,
    Proposals,
    Proposer,
    Verdict,
    from_json,
)
from kgen.agent.sandboxed import TemplateFault, rendered
from kgen.candidate import Candidate, ParamValue, Trust
from kgen.compiler.fusion.chosen import CutError
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.graph.graph import OpGraph
from kgen.devices.kinds import KINDS
from kgen.devices.machine import find_own_tools, keep_bytecode, resolve_device
from kgen.errors import CaptureError, KgenError, PluginError, RenderError
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, Evaluation, Phase, Status
from kgen.protocol.statistics import Interval, fastest, median_ms, standing
from kgen.store import Database, models, proposals, queries, ranking
from kgen.store.proposals import StoredProposals
from kgen.tuning.cutting import cut, schedules
from kgen.tuning.design import Design, named
from kgen.tuning.eval_file import OUTSIDE, syntax_error
from kgen.tuning.sweep import designed

FINALISTS = 3
_FOUND = 3  #: results of sweeps that a proposer is shown
_OPERATORS = 120  #: of a graph, whose names a proposer is shown
_REASON = 600  #: characters


@dataclass(frozen=True)
class AgentRequest:
    """The arguments of a run: at most ``rounds`` answers of the proposer, and ``budget`` judged proposals."""

    problem: Problem
    proposer: str
    model: str = ""
    url: str = ""
    rounds: int = 8
    budget: int | None = None
    device: str | None = None
    accuracy: Accuracy = Accuracy.PYTORCH
    baselines: tuple[str, ...] = ("eager",)
    seconds: float | None = None
    fresh: bool = False
    db: str | None = None


@dataclass(frozen=True)
class Ended:
    """The end of a run: how many proposals ended with each status, and the best one with its speedup over the fastest
    baseline."""

    sweep: str
    state: str
    counts: dict[str, int]
    best: str | None = None
    ms: float | None = None
    speedup: Interval | None = None
    baseline: str | None = None

    @property
    def beats_baseline(self) -> bool:
        return self.speedup is not None and self.speedup.low > 1.0


#: Is told each verdict with its number; the second function is told steps and notices, as lines.
Told = Callable[[int, Verdict], None]
Say = Callable[[str], None]


def run(request: AgentRequest, make: Callable[[], Proposer], told: Told, say: Say) -> Ended:
    """Run the proposer that ``make`` makes. Raises :class:`kgen.errors.KgenError` for a fault of the problem, the
    device, the database or the proposer's server. What was judged until then is in the store, and the same request goes
    on."""
    proposer = make()
    find_own_tools()
    keep_bytecode(paths.bytecode())
    evaluator = Evaluator(
        request.problem, device=resolve_device(request.device), accuracy=request.accuracy, home=paths.home(),
        baselines=request.baselines, notice=say, step=say, profile=True,
    )  # fmt: skip
    with Database.open(request.db, notice=say) as database, DevicePool([evaluator], server=evaluator.server) as devices:
        try:
            design: Design | None = designed(request.problem, devices)
        except CaptureError:  # files can be judged all the same
            devices.wait()
            design = None
        return _Run(request, database, evaluator, design, proposer, told, say).run()


@dataclass
class _Run:
    request: AgentRequest
    database: Database
    evaluator: Evaluator
    design: Design | None
    proposer: Proposer
    told: Told
    say: Say
    sweep: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    known: dict[str, Verdict] = field(default_factory=dict)  # by candidate
    candidates: dict[str, Candidate] = field(default_factory=dict)
    evaluations: dict[str, str] = field(default_factory=dict)  # ids of this process's evaluations, by candidate

    def run(self) -> Ended:
        started = time.monotonic()
        self._open()
        state, ended = "interrupted", None
        try:
            self._rounds()
            ended = self._finals()
            state = "finished"
            return ended
        finally:
            # A fault of the server leaves the run unfinished: the same command goes on.
            self.database.finish_sweep(self.sweep, state, time.monotonic() - started, ended.best if ended else None)

    def _open(self) -> None:
        problem, environment = self.evaluator.problem, self.evaluator.environment
        self.database.add_problem(problem, self.evaluator.health())
        self.database.add_environment(environment)
        asked = {
            "device": self.evaluator.device, "baselines": self.request.baselines, "proposer": self.request.proposer,
            "model": self.request.model, "url": self.request.url,
        }  # fmt: skip
        accuracy = self.evaluator.accuracy
        found = (
            None
            if self.request.fresh
            else self.database.unfinished_sweep(problem.id, environment.id, accuracy, asked, "agent")
        )
        if found:
            self.database.reopen_sweep(found)
            self.sweep = found
            self.say(f"going on with {found}")
            return
        self.sweep = self.database.start_sweep(
            problem=problem,
            environment=environment,
            accuracy=accuracy,
            device=self.evaluator.device,
            arguments=asked,
            combinations=self.design.combinations if self.design else 0,
            budget=self.request.budget or self.request.rounds,
            kind="agent",
            products=self.evaluator.products,
        )

    # Rounds --------------------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        stored = proposals.of_sweep(self.database, self.sweep)
        for answer in stored:
            self._judge(answer)
        number = len(stored)
        while number < self.request.rounds and not self._spent():
            number += 1
            self.say(f"round {number} of {self.request.rounds}: asking {self.request.model or self.request.proposer}")
            found = self._proposed()
            if not found.proposals:
                return
            self._judge(self._keep(number, found))

    def _proposed(self) -> Proposals:
        context = self._context()
        try:
            return self.proposer.propose(context)
        except KgenError:
            raise
        except Exception as error:
            if type(self.proposer).__module__.startswith("kgen."):
                raise
            raise PluginError(f"the proposer {self.request.proposer} raised {type(error).__name__}: {error}") from error

    def _spent(self) -> bool:
        return self.request.budget is not None and len(self.verdicts) >= self.request.budget

    def _keep(self, number: int, found: Proposals) -> StoredProposals:
        answer = StoredProposals(
            self.sweep,
            number,
            self.request.proposer,
            found.model,
            found.prompt,
            found.reply,
            found.prompt_tokens,
            found.reply_tokens,
            [one.to_json() for one in found.proposals],
        )
        proposals.add(self.database, answer)
        return answer

    def _judge(self, answer: StoredProposals) -> None:
        """Judge the proposals of an answer that have no verdict yet, and tell the proposer of all."""
        rows = [dict(row) for row in answer.proposals]
        verdicts = []
        for row in rows:
            proposal = from_json(row)
            if "status" in row:
                verdict = Verdict(
                    proposal, **{name: row[name] for name in ("status", "reason", "candidate", "ms", "speedup")}
                )
                if verdict.candidate:
                    self.known.setdefault(verdict.candidate, verdict)
            elif self._spent():
                break
            else:
                verdict = self._verdict(proposal)
                row |= {name: getattr(verdict, name) for name in ("status", "reason", "candidate", "ms", "speedup")}
                proposals.judged(self.database, answer, rows)
                self.told(len(self.verdicts) + 1, verdict)
            verdicts.append(verdict)
            self.verdicts.append(verdict)
        self.proposer.tell(verdicts)

    def _verdict(self, proposal: Proposal) -> Verdict:
        if proposal.fault:
            return Verdict(proposal, REFUSED, proposal.fault[:_REASON])
        try:
            candidate = self._typed(proposal) if proposal.language == KGEN else self._foreign(proposal)
        except _Refused as refused:
            return Verdict(proposal, REFUSED, str(refused)[:_REASON])
        if candidate.id in self.known:
            before = self.known[candidate.id]
            return Verdict(
                proposal, before.status, f"proposed before: {before.reason}", candidate.id, before.ms, before.speedup
            )
        self.candidates[candidate.id] = candidate
        verdict = self._judged(proposal, candidate)
        self.known[candidate.id] = verdict
        return verdict

    def _foreign(self, proposal: Proposal) -> Candidate:
        text = proposal.text
        if proposal.language == TEMPLATE:
            try:
                text = rendered(text, proposal.params)
            except TemplateFault as fault:
                raise _Refused(f"the template cannot be rendered with {dict(proposal.params)}: {fault}") from None
        return Candidate(
            text, OUTSIDE, dict(proposal.params), self.evaluator.hardware.device_type, origin=Trust.FOREIGN
        )

    def _typed(self, proposal: Proposal) -> Candidate:
        """The candidate of a typed choice, which kgen renders: it is kgen's own."""
        if self.design is None:
            raise _Refused("kgen cannot capture this forward: it has no plans")
        plans = {choice.name: number for number, choice in enumerate(self.design.choices) if choice.kernels}
        numbers = [*plans.values()]
        if proposal.cut is not None:
            try:
                number = cut(self.design, proposal.cut)
            except CutError as error:
                raise _Refused(f"kgen makes no plan of these kernels: {error}") from error
        elif isinstance(proposal.plan, int):
            if not 1 <= proposal.plan <= len(numbers):
                raise _Refused(f"there is no plan {proposal.plan}: they are numbered from 1 to {len(numbers)}")
            number = numbers[proposal.plan - 1]
        elif proposal.plan in plans:
            number = plans[proposal.plan]
        else:
            raise _Refused(
                f"there is no plan {proposal.plan[:120]!r}: name one of the plans that were shown, or its number"
            )
        choice, option = self.design.choices[number], self.design.options[number]
        params = named(choice.prefixes, (kernel[index] for kernel, index in zip(option.kernels, option.plainest or ())))
        if unknown := [name for name in proposal.params if name not in params]:
            raise _Refused(f"the plan has no parameter {unknown[0][:60]!r}: it has {', '.join(params) or 'none'}")
        point = self.design.point(choice.name, {**params, **proposal.params})
        if point is None:
            raise _Refused(
                f"kgen does not allow { ({**params, **proposal.params}) }: a value is none of the parameter's, or a "
                "constraint rules it out"
            )
        try:
            candidate = self.design.candidate(point)
            # An expression of the proposer's is no part of kgen, though kgen wrote the text around it.
            return replace(candidate, origin=Trust.FOREIGN) if proposal.cut and proposal.cut.expressions else candidate
        except RenderError as error:
            raise _Refused(f"it cannot be rendered: {error}") from error

    def _judged(self, proposal: Proposal, candidate: Candidate) -> Verdict:
        self.say("judging a proposal")
        paths.write_candidate(candidate.id, candidate.source)
        evaluation = self.database.evaluated(self.sweep).get(
            candidate.id
        )  # where the process ended before its verdict was kept
        ms = speedup = None
        if evaluation is None:
            evaluation = self._evaluated(candidate)
            if evaluation.status is Status.OK and evaluation.timing:
                screened = self.evaluator.baselines()
                self._keep_timings(screened)
                ms = median_ms(evaluation.timing)
                speedup = min(map(median_ms, screened)) / ms if screened else None
            self.evaluations[candidate.id] = self.database.add_evaluation(
                self.sweep,
                candidate,
                evaluation,
                environment_id=self.evaluator.environment.id,
                median_ms=ms,
                speedup=speedup,
            )
        elif evaluation.timing:
            ms = median_ms(evaluation.timing)
        return Verdict(
            proposal, evaluation.status.value, evaluation.reason[:_REASON], candidate.id, ms, speedup, evaluation.labels
        )

    def _evaluated(self, candidate: Candidate) -> Evaluation:
        if reason := syntax_error("the proposal", candidate.source):
            return Evaluation(candidate.id, Status.LOAD_ERROR, reason, self.evaluator.accuracy, Phase.LOAD)
        return self.evaluator.evaluate(candidate, self.evaluator.builder().build(candidate.source))

    # What a proposer is shown ----------------------------------------------------------------------------------------

    def _context(self) -> Context:
        right = [v.candidate for v in self.verdicts if v.ok and v.candidate]
        return Context(
            problem=self.evaluator.problem,
            hardware=self.evaluator.hardware,
            plans=tuple(self._plans()),
            baselines={t.subject: median_ms(t) for t in self.evaluator.baselines()},
            verdicts=tuple(self.verdicts),
            sources={candidate: queries.source(self.database, candidate) for candidate in dict.fromkeys(right)},
            found=tuple(self._found()),
            graphs=tuple(self._graphs()),
            schedules=schedules(self.design) if self.design else (),
        )

    def _graphs(self) -> Sequence[Operators]:
        """The operators of the graph as it is, and of the plan that is predicted to be the fastest."""
        if self.design is None or len(self.design.capture.graphs) > 1:
            return ()
        plain, best = (
            self.design.capture.graphs[0][1],
            next((c.plans[0][1] for c in self.design.choices if c.kernels), None),
        )
        found = {(): plain} | ({best.rewrites: best.graph} if best else {})
        return [
            Operators(rewrites, tuple(_described(graph)))
            for rewrites, graph in found.items()
            if len(graph.nodes) <= _OPERATORS
        ]

    def _plans(self) -> Sequence[PlanChoices]:
        if self.design is None:
            return ()
        pairs = [(c, o) for c, o in zip(self.design.choices, self.design.options) if c.kernels]
        return [
            PlanChoices(
                number,
                choice.name,
                option.predicted_ms,
                tuple(
                    KernelChoices(kernel.name, _values(prefix, kernel))
                    for kernel, prefix in zip(option.kernels, choice.prefixes)
                ),
                option,
                choice.prefixes,
            )
            for number, (choice, option) in enumerate(pairs, 1)
        ]

    def _found(self) -> Sequence[str]:
        """The fastest results of sweeps of this problem here, as lines."""
        rows = ranking.best(self.database, problem_ids=[self.evaluator.problem.id], kinds=models.OWN_KINDS)
        trials = [row.trial for row in rows if row.trial and row.environment == self.evaluator.environment]
        return [
            f"{t.plan}, {dict(t.params)}: {t.median_ms or 0.0:.4g} ms, {t.speedup or 0.0:.3g}x" for t in trials[:_FOUND]
        ]

    # The finals ----------------------------------------------------------------------------------------------------

    def _finals(self) -> Ended:
        """Time the fastest right proposals in turns with the baselines, and store the result of each."""
        counts = dict(Counter(v.status for v in self.verdicts))
        right = sorted((v for v in self.known.values() if v.ok and v.ms is not None), key=lambda v: v.ms or 0.0)[
            :FINALISTS
        ]
        if not right:
            return Ended(self.sweep, "finished", counts)
        self.say(f"timing {len(right)} beside {', '.join(self.request.baselines)}")
        builder = self.evaluator.builder()
        entries = [(one, builder.build(one.source)) for one in map(self._candidate, (v.candidate or "" for v in right))]
        seconds = self.request.seconds or KINDS[self.evaluator.hardware.device_type].timing_seconds
        timings = self.evaluator.finals(entries, seconds=seconds, failed=self._overturn)
        self._keep_timings(timings)
        ids = {candidate.id for candidate, _ in entries}
        baselines = [t for t in timings if t.subject not in ids]
        own = sorted((t for t in timings if t.subject in ids), key=median_ms)
        if not own or not baselines:
            return Ended(self.sweep, "finished", counts)
        reference = fastest(baselines)
        beside = {t.subject: standing(reference, t).ms for t in baselines}
        for timing in own:
            found = standing(reference, timing)
            evaluation = self.database.evaluated(self.sweep)[timing.subject]
            self.database.set_result(
                self.sweep,
                timing.subject,
                median_ms=found.ms,
                speedup=found.speedup.mid,
                speedup_low=found.speedup.low,
                speedup_high=found.speedup.high,
                baselines=beside,
                baseline=reference.subject,
                error_ratio=evaluation.error_ratio,
                tie=False,
            )
        best = standing(reference, own[0])
        return Ended(self.sweep, "finished", counts, own[0].subject, best.ms, best.speedup, reference.subject)

    def _candidate(self, id: str) -> Candidate:
        if id not in self.candidates:  # of an earlier process of this run
            detail = queries.candidate(self.database, id)
            origin = Trust.OWN if detail.origin == "sweep" else Trust.FOREIGN
            self.candidates[id] = Candidate(
                detail.source,
                detail.plan,
                detail.params,
                detail.device_type,
                detail.kernels,
                origin=origin,
                rewrites=detail.rewrites,
                plan_data=detail.plan_data,
            )
        return self.candidates[id]

    def _overturn(self, candidate: str, failure: Failure) -> None:
        if candidate in self.evaluations:
            reason = f"timed again beside PyTorch: {failure.reason}"
            self.database.overturn(self.evaluations[candidate], failure.status, Phase.TIME, reason)
        self.say(f"{candidate[:12]} failed in its last timing: {failure.reason}")

    def _keep_timings(self, timings: Sequence[Any]) -> None:
        self.database.add_timings(self.sweep, self.evaluator.environment.id, self.evaluator.accuracy, timings)


def _described(graph: OpGraph) -> Iterator[str]:
    for node in graph.nodes:
        if node.name not in made_on_the_way(graph):
            sizes = " x ".join(map(str, node.type.shape)) if node.type is not None else ""
            yield f"{node.name} = {node.op}({', '.join(node.values)}){f': {sizes}' if sizes else ''}"


class _Refused(Exception):
    """No candidate can be made of a proposal; the message says why."""


def _values(prefix: str, kernel: Sequence[Any]) -> dict[str, tuple[ParamValue, ...]]:
    """The values of each parameter that occur among a kernel's combinations, as a candidate names them."""
    found: dict[str, dict[ParamValue, None]] = {}
    for params in kernel:
        for name, value in params.items():
            found.setdefault(f"{prefix}{name}", {})[value] = None
    return {name: tuple(values) for name, values in found.items()}
