"""Launches of kernels in the text of a ModelNew, and the memory that runs of them allocate."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kgen.candidate import GAP
from kgen.compiler.graph.dtypes import nbytes

# Bytes. Parts of an allocation begin at multiples of this number, and as many unused bytes lie in front of each.
_PART = GAP

#: A pointer that a kernel takes: its table, and its key in that.
Pointer = tuple[str, str]
TENSORS, WEIGHTS = "tensors", "weights"


@dataclass(frozen=True)
class Launch:
    """One kernel of a run: its launcher, its rows as source, and its pointers."""

    launcher: str
    rows: str
    pointers: tuple[Pointer, ...]


@dataclass
class Buffer:
    """Memory that a kernel of a run fills: the values in it, one after the other, and the launches that use it.

    ``sizes`` are the argument of ``new_empty``, ``elements`` their product, both as source. A buffer that ``leaves`` is
    a tensor of Python's for what follows; another one serves its run alone. Values of a run's table are known by
    ``key``.
    """

    key: str
    values: list[str]
    sizes: str
    elements: str
    dtype: str
    first: int
    last: int
    leaves: bool = False

    @property
    def name(self) -> str:
        """The name of its tensor: that of its last value."""
        return self.values[-1]


@dataclass
class Step:
    """A call of the library, or a run of kernels. ``lines`` stand before the launch, ``behind`` after it."""

    lines: list[str] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    dense: dict[str, str] = field(default_factory=dict)  # names of dense forms by their source
    made: list[str] = field(default_factory=list)  # names of Python
    used: set[str] = field(default_factory=set)  # likewise
    closed: bool = False  # nothing is added to it any more


@dataclass(frozen=True)
class Run:
    """A function of C that launches kernels one behind the other, and the arguments of each as source.

    ``tensors`` is the number of pointers to the call's tensors.
    """

    name: str
    calls: tuple[tuple[str, str], ...]
    tensors: int
    takes_weights: bool
    takes_batch: bool

    def packed(self, streams: bool) -> str:
        """The format of ``struct`` for its arguments, the stream last."""
        return f"{self.tensors}P" + "P" * self.takes_weights + "q" * self.takes_batch + "P" * streams


@dataclass
class Memory:
    """A tensor that a run allocates, for the buffers of these keys. Each is last used before the next is written."""

    keys: list[str]
    name: str
    sizes: str
    elements: list[str]
    dtype: str
    values: list[str]
    last: int
    leaves: bool

    @property
    def count(self) -> str:
        """Python source of the number of elements."""
        return self.elements[0] if len(self.elements) == 1 else f"max({', '.join(self.elements)})"

    @property
    def comment(self) -> str:
        return f"  # {', then '.join(self.values)}" if len(self.values) > 1 else ""

    def takes(self, buffer: Buffer) -> bool:
        """Whether the buffer may lie here."""
        return not self.leaves and not buffer.leaves and self.dtype == buffer.dtype and self.last < buffer.first

    def add(self, buffer: Buffer) -> None:
        self.keys.append(buffer.key)
        self.values += [v for v in buffer.values if v != self.values[-1]]
        self.elements += [e for e in [buffer.elements] if e not in self.elements]
        self.sizes = self.count
        self.last = buffer.last


@dataclass(frozen=True)
class Layout:
    """The tensors that a run allocates. ``parts`` are those that lie in one allocation, ``memory``, of which Python has
    pointers."""

    tensors: tuple[Memory, ...]
    parts: tuple[Memory, ...] = ()

    @classmethod
    def of(cls, step: Step, fewest_parts: int | None) -> Layout:
        """The layout of a step. From ``fewest_parts`` on, tensors of the run alone are parts of one; with ``None``,
        never."""
        tensors: list[Memory] = []
        for b in step.buffers:
            fits = [t for t in tensors if t.takes(b)]
            found = next((t for t in fits if b.elements in t.elements), fits[0] if fits else None)
            if found:
                found.add(b)
            else:
                tensors.append(Memory([b.key], b.name, b.sizes, [b.elements], b.dtype, [*b.values], b.last, b.leaves))
        own = sorted(
            (t for t in tensors if not t.leaves), key=lambda t: "batch_size" in t.sizes
        )  # constant places first
        parts = own if fewest_parts is not None and len(own) >= fewest_parts else []
        _name_apart(tensors, numbered=bool(parts))
        return cls(tuple(tensors), tuple(parts))

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where all parts but the first begin, in bytes as source."""
        first, *rest = self.parts or (None,)
        found = []
        for before, part in zip(self.parts, rest):
            size = f"({_bytes(before)} + {2 * _PART - 1}) & -{_PART}"
            place = str(int(_bytes(before)) + 2 * _PART - 1 & -_PART) if _bytes(before).isdecimal() else size
            found.append((part.name, f"{before.name} + ({place})" if before is not first else place))
        return found

    @property
    def size(self) -> str:
        """The bytes of ``memory`` as source."""
        return f"{self.parts[-1].name} + {_bytes(self.parts[-1])}"

    def division(self, like: str) -> list[str]:
        """The statements that make places of all parts but the first, and allocate ``memory`` on the device of a
        tensor."""
        lines = [f"{name} = {place}{part.comment}" for (name, place), part in zip(self.places, self.parts[1:])]
        names = ", ".join(part.name for part in self.parts)
        return [
            *lines,
            f"memory = {like}.new_empty({self.size}, dtype=torch.uint8)  # {names}",
            "at = memory.data_ptr()",
        ]

    def pointer(self, name: str) -> str:
        """Python source of a pointer to a tensor."""
        places = {part.name: f"at + {part.name}" if number else "at" for number, part in enumerate(self.parts)}
        return places.get(name, f"{name}.data_ptr()")

    def tensor(self, key: str) -> str:
        """The name of the tensor behind a key of the run's table: a buffer's key, or a name already."""
        return next((t.name for t in self.tensors if key in t.keys), key)

    def table(self, step: Step) -> list[str]:
        """The names of the tensors in the run's table, in order."""
        keys = [key for launch in step.launches for table, key in launch.pointers if table == TENSORS]
        return list(dict.fromkeys(map(self.tensor, keys)))


def _name_apart(tensors: list[Memory], numbered: bool) -> None:
    """Tensors for more than one buffer are called ``memory``, with a number where one is ``numbered`` or there are
    several."""
    shared = [t for t in tensors if len(t.keys) > 1]
    for number, tensor in enumerate(shared):
        tensor.name = f"memory_{number + 1}" if numbered or len(shared) > 1 else "memory"
    workspaces = [t for t in tensors if t.name == "workspace"]
    for number, tensor in enumerate(workspaces[1:]):
        tensor.name = f"workspace_{number + 2}"


def _bytes(part: Memory) -> str:
    """Python source of a part's size, with one number for those that are multiplied."""
    factors = [str(nbytes(part.dtype)), *part.count.split(" * ")]
    if not all(re.fullmatch(r"\w+", factor) for factor in factors):
        return f"{nbytes(part.dtype)} * {part.count if part.count.startswith('max(') else f'({part.count})'}"
    number = math.prod(int(factor) for factor in factors if factor.isdecimal())
    return " * ".join([str(number), *(factor for factor in factors if not factor.isdecimal())])
