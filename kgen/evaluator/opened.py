"""The oracle's description of the device and of the problem, once it has run the problem."""

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence


@dataclass(frozen=True)
class Opened:
    """The answers to ``about`` and ``open``. ``cases`` are the test cases: distributions with modes.

    ``peak_bytes`` is the device memory of one forward in PyTorch. ``bytes`` are the bytes of inputs and outputs.
    ``copy_rate`` is in gigabytes (1e9) a second. ``operators`` counts the operators that a forward in each mode calls;
    ``elementwise`` names elementwise operators. ``load`` and ``prepare`` are given to workers as they are.
    """

    torch: str = ""
    python: str = ""
    host: str = ""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    copy_rate: float = 0.0
    flush_bytes: int = 0
    least_bytes: int = 0
    mode: str = ""
    accuracy: str = ""
    half: bool = False
    cases: Sequence[Sequence[str]] = ()
    bytes: int = 0
    output_bytes: int = 0
    peak_bytes: int = 0
    rows: int = 1 << 62
    flags: Sequence[bool] = ()
    products: Sequence[Mapping[str, Any]] = ()
    layouts: Mapping[str, Any] = field(default_factory=dict)
    operators: Mapping[str, int] = field(default_factory=dict)
    elementwise: Sequence[str] = ()
    load: Mapping[str, Any] = field(default_factory=dict)
    prepare: Mapping[str, Any] = field(default_factory=dict)
