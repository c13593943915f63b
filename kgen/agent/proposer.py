"""The interface of proposers: what they are shown, what they propose, and what they are told afterwards.

A proposer is a class whose ``propose(context)`` returns :class:`Proposals` and whose ``tell(verdicts)`` is told what
became of them. It is named by an entry point of the group ``kgen.proposers``: a function that makes one from
:class:`Settings`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Callable, Mapping, Protocol, Sequence

from kgen.candidate import ParamValue
from kgen.compiler.fusion.chosen import Cut
from kgen.devices.hardware import Hardware
from kgen.errors import InputError, PluginError
from kgen.problems.problem import Problem
from kgen.tuning.search import Option

GROUP = "kgen.proposers"
KGEN, FREE, TEMPLATE = "kgen", "free", "template"  #: the languages of proposals
REFUSED = "refused"  #: the status of a proposal that no candidate could be made of


@dataclass(frozen=True)
class Proposal:
    """A candidate to try. In the language ``kgen`` it is a plan, by its name or its number from 1, or a ``cut`` of the
    graph's operators into kernels; both with parameters. In ``free``, it is a text. In ``template``, it is a text for
    Jinja with the values of its parameters.

    A proposal with ``fault`` could not be read, and is only reported back.
    """

    language: str
    text: str = ""
    plan: str | int = ""
    params: Mapping[str, ParamValue] = field(default_factory=dict)
    fault: str = ""
    cut: Cut | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON values, from which :func:`from_json` makes the same."""
        return {**vars(self), "params": dict(self.params), "cut": None if self.cut is None else asdict(self.cut)}


def from_json(stored: Mapping[str, Any]) -> Proposal:
    """The inverse of :meth:`Proposal.to_json`; an older row lacks the newest fields."""
    fields = {name: stored[name] for name in Proposal.__dataclass_fields__ if name in stored}
    if cut := fields.pop("cut", None):
        fields["cut"] = Cut(
            tuple(map(tuple, cut["kernels"])),
            tuple(cut["schedules"]),
            tuple(cut["rewrites"]),
            tuple(map(tuple, cut["expressions"])),
        )
    return Proposal(**fields)


@dataclass(frozen=True)
class Proposals:
    """What a proposer answers; the prompt, the reply, the model and the tokens where a language model was asked. None
    ends the run."""

    proposals: tuple[Proposal, ...]
    prompt: str = ""
    reply: str = ""
    model: str = ""
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a proposal; ``speedup`` is over the fastest baseline, by its screening."""

    proposal: Proposal
    status: str
    reason: str = ""
    candidate: str | None = None
    ms: float | None = None
    speedup: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class KernelChoices:
    """A kernel of a plan: its operators, and the values of each of its parameters, the plainest first."""

    label: str
    parameters: Mapping[str, tuple[ParamValue, ...]]


@dataclass(frozen=True)
class PlanChoices:
    """A plan that kgen can render, with its predicted time in milliseconds. ``option`` has its allowed combinations,
    whose parameters have the ``prefixes`` of their kernels in a candidate."""

    number: int
    name: str
    ms: float
    kernels: tuple[KernelChoices, ...]
    option: Option
    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class Operators:
    """The operators of the graph after some ``rewrites``, one a line: name, operands, sizes."""

    rewrites: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Context:
    """What a proposer is shown. ``found`` are lines on what sweeps have found; ``verdicts`` are in the order of the
    proposals. A cut names operators of one of the ``graphs``, and ``schedules``."""

    problem: Problem
    hardware: Hardware
    plans: tuple[PlanChoices, ...]
    baselines: Mapping[str, float]
    verdicts: tuple[Verdict, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)  #: of candidates, by their ids
    found: tuple[str, ...] = ()
    graphs: tuple[Operators, ...] = ()
    schedules: tuple[str, ...] = ()

    @property
    def best(self) -> Verdict | None:
        """The fastest right proposal so far."""
        right = [v for v in self.verdicts if v.ok and v.ms is not None]
        return min(right, key=lambda v: v.ms or 0.0, default=None)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if not v.ok)


class Proposer(Protocol):
    """Proposes candidates until it has none. A continued run tells it the stored verdicts first."""

    def propose(self, context: Context) -> Proposals: ...

    def tell(self, verdicts: Sequence[Verdict]) -> None: ...


@dataclass(frozen=True)
class Settings:
    """The options that proposers are made from; each reads its own."""

    model: str | None = None
    url: str | None = None
    folder: str | None = None
    stream: bool = True
    strategy: str = "additive"
    seed: int = 0
    notice: Callable[[str], None] = field(default=lambda text: None)


def known() -> dict[str, metadata.EntryPoint]:
    """The proposers by name: kgen's own, and those of other packages."""
    return {entry.name: entry for entry in (*metadata.entry_points(group=GROUP), *_OWN)}


def make(name: str, settings: Settings) -> Proposer:
    """The proposer of a name. Raises :class:`InputError` for an unknown one, and what making it raises."""
    entries = known()
    if name not in entries:
        raise InputError(f"no proposer {name!r}: there are {', '.join(sorted(entries))}")
    try:
        made: Callable[[Settings], Proposer] = entries[name].load()
    except (ImportError, AttributeError) as error:
        raise PluginError(f"the proposer {name} cannot be imported: {type(error).__name__}: {error}") from error
    return made(settings)


#: They need no installed metadata, which a checkout may lack.
_OWN = tuple(
    metadata.EntryPoint(name, value, GROUP)
    for name, value in (
        ("model", "kgen.agent.language_model:LanguageModel.of"),
        ("folder", "kgen.agent.folder:Folder.of"),
        ("enumeration", "kgen.agent.enumeration:Enumeration.of"),
        ("search", "kgen.agent.searching:Searching.of"),
    )
)
