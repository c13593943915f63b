"""Windows as schedules see them, alike on every kind of device: what is computed once for each position, tap, or both."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from kgen.compiler.loops import Load, Map, Program, Window
from kgen.compiler.windows import Slide

_LETTERS = "abcd"


@dataclass(frozen=True)
class WindowParts:
    """The body of a window, by what its values vary over.

    ``points`` vary over positions alone: one for each input. ``near`` are those of them that ``pairs`` or the reduction take.
    ``taps`` vary over taps alone, such as weights; ``pairs`` over both.
    """

    window: Window
    points: tuple[Load | Map, ...]
    near: tuple[str, ...]
    taps: tuple[Load | Map, ...]
    pairs: tuple[Load | Map, ...]

    @staticmethod
    def of(program: Program) -> WindowParts:
        (window,) = program.windows
        positions = {s.position for s in window.slides}
        tapped = {s.tap for s in window.slides}
        varies: dict[str, set[sympy.Symbol]] = {}
        for step in window.body:
            own = step.access.symbols if isinstance(step, Load) else set().union(*(varies.get(a, set()) for a in step.args))
            varies[step.name] = set(own) & (positions | tapped)
        points = tuple(s for s in window.body if not varies[s.name] & tapped)
        taps = tuple(s for s in window.body if not varies[s.name] & positions)
        pairs = tuple(s for s in window.body if varies[s.name] & tapped and varies[s.name] & positions)
        used = {a for s in pairs if isinstance(s, Map) for a in s.args} | {window.arg}
        return WindowParts(window, points, tuple(p.name for p in points if p.name in used), taps, pairs)

    @property
    def inner(self) -> Slide:
        return self.window.slides[-1]

    @property
    def outer(self) -> tuple[Slide, ...]:
        """The dimensions but the innermost one."""
        return self.window.slides[:-1]

    def letter(self, slide: Slide) -> str:
        """The letter that names the variables of a dimension, ``a`` for the outermost one."""
        return _LETTERS[self.window.slides.index(slide)]

    def variables(self) -> dict[sympy.Symbol, str]:
        """The variable of each output, position and tap: ``out_a``, ``in_a``, ``tap_a``."""
        found: dict[sympy.Symbol, str] = {}
        for slide in self.window.slides:
            letter = self.letter(slide)
            found |= {slide.position: f"in_{letter}", slide.tap: f"tap_{letter}"}
            if slide.output != 0:
                found[slide.output] = f"out_{letter}"
        return found

    def count(self) -> str:
        """The count of positions of a mean, in C."""
        return " * ".join(
            f"covered<{s.taps}, {s.counted[0]}, {s.counted[1]}>(out_{self.letter(s)} * {s.stride} - {s.padding})"
            for s in self.window.slides
        )  # fmt: skip
