"""Requests: their fields, checked one by one, and the evaluation that they describe."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from kgen.errors import InputError
from kgen.problems.problem import DTYPES, MODES, Problem
from kgen.protocol import KNOWN_BASELINES, Accuracy
from kgen.store import codec

LANGUAGES = ("cuda", "cpp", "triton", "pytorch")  #: languages of a candidate's kernels
CACHES = ("cold", "warm")
MOST_BYTES = 1 << 20  #: bytes of one request
MOST_SECONDS = 60.0  #: s; of the timing beside the baselines
_PRIORITIES = range(-100, 101)
_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class RequestError(InputError):
    """A request that is wrong. ``status`` is the HTTP status of the answer, and the message is one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """An evaluation that was asked for. ``foreign`` says that the problem's text came with the request."""

    problem: Problem
    foreign: bool
    candidate: str
    language: str
    accuracy: Accuracy
    baselines: tuple[str, ...]
    seconds: float
    cache: str

    @property
    def bench(self) -> str:
        """The identity of the evaluator that can judge it: problem, class, baselines and cache."""
        return _hash({**self._conditions, "seconds": None})

    @property
    def digest(self) -> str:
        """The identity of its verdict in one environment."""
        return _hash({**self._conditions, "candidate": hashlib.sha256(self.candidate.encode()).hexdigest()})

    @property
    def _conditions(self) -> dict[str, Any]:
        return {
            "problem": self.problem.source,
            "mode": self.problem.asked_mode,
            "foreign": self.foreign,
            "accuracy": self.accuracy.value,
            "baselines": list(self.baselines),
            "seconds": self.seconds,
            "cache": self.cache,
        }

    def to_json(self) -> dict[str, Any]:
        """JSON values, from which :func:`from_json` makes the same."""
        problem = self.problem
        return {
            "problem": {
                "name": problem.name,
                "path": problem.path,
                "source": problem.source,
                "overrides": [list(pair) for pair in problem.overrides],
                "mode": problem.asked_mode,
            },
            "foreign": self.foreign,
            "candidate": self.candidate,
            "language": self.language,
            "accuracy": self.accuracy.value,
            "baselines": list(self.baselines),
            "seconds": self.seconds,
            "cache": self.cache,
        }


def from_json(stored: Mapping[str, Any]) -> Asked:
    """The inverse of :meth:`Asked.to_json`."""
    fields = stored["problem"]
    overrides = tuple((name, value) for name, value in fields["overrides"])
    problem = Problem(fields["name"], fields["path"], fields["source"], overrides, fields["mode"], fields["mode"])
    changed = {
        "problem": problem,
        "accuracy": Accuracy(stored["accuracy"]),
        "baselines": tuple(stored["baselines"]),
    }
    return Asked(**{**stored, **changed})


@dataclass(frozen=True)
class Field:
    """One field of a request: its check, its JSON schema and one line about it. Without a ``default`` it is
    required."""

    check: Callable[[Any], bool]
    schema: Mapping[str, Any]
    about: str
    default: Any = None


def _is_text(value: Any) -> bool:
    """Whether a value is a text that files and databases can hold."""
    if not isinstance(value, str) or "\0" in value or not value.strip():
        return False
    try:
        return len(value.encode()) <= MOST_BYTES
    except UnicodeEncodeError:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _choice(names: tuple[str, ...], about: str, default: Any) -> Field:
    return Field(
        lambda value: value in names if isinstance(value, str) else False,
        {"type": "string", "enum": list(names)},
        about,
        default,
    )


def _are_overrides(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_text(name) and _is_text(text) for name, text in value.items())


def _are_baselines(value: Any) -> bool:
    names = value if isinstance(value, list) else []
    return "eager" in names and all(isinstance(name, str) and name in KNOWN_BASELINES for name in names)


_TEXT = {"type": "string", "maxLength": MOST_BYTES}

#: The fields of a request by name.
FIELDS: Mapping[str, Field] = {
    "candidate": Field(_is_text, _TEXT, "The text of a Python file with a class ModelNew."),
    "problem": Field(_is_text, {"type": "string"}, "The name of a known problem; GET /problems lists them."),
    "problem_text": Field(
        _is_text, _TEXT, "The text of a problem file instead of a name, where the service accepts texts."
    ),
    "overrides": Field(
        _are_overrides,
        {"type": "object", "additionalProperties": {"type": "string"}},
        "New values of constants of the problem, as Python literals.",
        {},
    ),
    "id": Field(
        lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None,
        {"type": "string", "pattern": f"^{_ID.pattern}$"},
        "An id of the client's choice. The same request again is the same evaluation.",
    ),
    "language": _choice(LANGUAGES, "The language of the kernels.", "cuda"),
    "accuracy": _choice(tuple(one.value for one in Accuracy), "The class of accuracy.", Accuracy.PYTORCH.value),
    "mode": _choice(MODES, "The mode of the model; by default as constructed.", ""),
    "dtype": _choice(DTYPES, "The dtype that the model and its inputs are converted to.", ""),
    "baselines": Field(
        _are_baselines,
        {"type": "array", "items": {"type": "string", "enum": list(KNOWN_BASELINES)}},
        "Baselines of PyTorch to compare with; eager is among them.",
        ["eager"],
    ),
    "seconds": Field(
        lambda value: _is_number(value) and 0 < value <= MOST_SECONDS,
        {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS},
        "Seconds of the timing beside the baselines; by default the service's --time.",
    ),
    "cache": _choice(CACHES, "The state of the device's cache before each timed call.", "cold"),
    "priority": Field(
        lambda value: type(value) is int and value in _PRIORITIES,
        {"type": "integer", "minimum": _PRIORITIES[0], "maximum": _PRIORITIES[-1]},
        "Higher goes first.",
        0,
    ),
}


def checked(body: Any) -> dict[str, Any]:
    """The fields of a request's JSON body, with their defaults. Raises :class:`RequestError`, which names the field."""
    if not isinstance(body, dict):
        raise RequestError(422, "the request is no JSON object")
    if unknown := sorted(name[:60] for name in body.keys() - FIELDS.keys()):
        raise RequestError(422, f"{ascii(unknown[0])} is no field of a request; there are: {', '.join(FIELDS)}")
    found = {}
    for name, field in FIELDS.items():
        value = body.get(name)
        if value is None:
            value = field.default
        elif not field.check(value):
            raise RequestError(422, f"{name} is not what it has to be: {field.about}")
        found[name] = value
    if found["candidate"] is None:
        raise RequestError(422, "candidate is missing: the text of a Python file with a class ModelNew")
    if (found["problem"] is None) == (found["problem_text"] is None):
        raise RequestError(422, "a request needs either problem or problem_text")
    if found["dtype"] in DTYPES[1:] and found["accuracy"] != Accuracy.PYTORCH:
        raise RequestError(
            422,
            f"accuracy {found['accuracy']} is for float32: {found['dtype']} is judged by PyTorch's own error, pytorch",
        )
    return found


def _hash(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(codec.canonical(value).encode()).hexdigest()
