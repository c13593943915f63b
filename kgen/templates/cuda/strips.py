"""Strips of windows in CUDA: neighbouring outputs of a thread, which reads each input of the strip once."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from kgen.codegen.space import Constraint
from kgen.codegen.windowing import WindowParts, inside
from kgen.compiler.loops.program import Program, Slide


class Strips:
    """A schedule whose threads compute ``y`` rows of ``x`` neighbouring outputs each."""

    x: int
    y: int
    program: Program

    @cached_property
    def parts(self) -> WindowParts:
        return WindowParts.of(self.program)

    @property
    def inner(self) -> Slide:
        return self.parts.inner

    @property
    def above(self) -> Slide | None:
        """The dimension of rows: the one before the innermost, where the window moves along it."""
        outer = self.parts.outer
        return outer[-1] if outer and outer[-1].stride else None

    @property
    def step(self) -> int:
        """Input rows from one that a thread reads to the next."""
        if self.above is None:
            return 1
        return self.above.dilation if self.y == 1 else math.gcd(self.above.stride, self.above.dilation)

    @property
    def lines(self) -> int:
        """Input rows that a thread reads."""
        if self.above is None:
            return 1
        return ((self.y - 1) * self.above.stride + self.above.span - 1) // self.step + 1

    @property
    def inside_row(self) -> str:
        """The condition that an input row is one of the image; empty where it always is."""
        above = self.above
        if above is None:
            return ""
        strips = -(-above.outputs // self.y) * self.y - self.y
        last = strips * above.stride + (self.lines - 1) * self.step - above.padding
        return inside(f"in_{self.parts.letter(above)}", -above.padding, last, above.size)

    def in_outer_loops(self, text: str, most_unrolled: int = 0) -> str:
        """The text in loops over the taps of the dimensions that the strip does not cover. Loops of at most
        ``most_unrolled`` taps are unrolled."""
        lines = text.splitlines()
        for slide in reversed([s for s in self.parts.outer if s is not self.above]):
            unrolled = ["#pragma unroll"] if slide.taps <= most_unrolled else []
            lines = [*unrolled, *self.parts.outer_loop(slide, lines)]
        return "".join(f"{line}\n" for line in lines)

    def shown(self, slide: Slide | None) -> dict[str, Any] | None:
        """One dimension of the window, as the text shows it."""
        if slide is None:
            return None
        names = ("outputs", "taps", "stride", "dilation", "padding", "span", "size")
        return {name: getattr(slide, name) for name in names} | {"letter": self.parts.letter(slide)}


def rows_in_image(above: Slide | None) -> Constraint:
    """A strip has no more rows of outputs than an image."""
    return Constraint(
        "rows_in_image",
        ("y",),
        "an image has fewer rows of outputs: fewer to a thread do the same",
        lambda s: s.y == 1 or (above is not None and s.y <= above.outputs),
    )
