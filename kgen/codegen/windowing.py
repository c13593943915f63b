"""Windows as schedules see them, alike on every kind of device: what is computed once for each position, tap, or
both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from kgen.codegen.c_printer import block
from kgen.codegen.symbols import symbol
from kgen.compiler.loops.program import Load, Map, Program, Slide, Store, Window

if TYPE_CHECKING:
    import sympy

_LETTERS = "abcd"

T = TypeVar("T", Load, Store)


@dataclass(frozen=True)
class WindowParts:
    """The body of a window, by what its values vary over.

    ``points`` vary over positions alone: one for each input. ``near`` are those of them that ``pairs`` or the reduction
    take. ``taps`` vary over taps alone, such as weights; ``pairs`` over both.
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
            own = (
                step.access.symbols
                if isinstance(step, Load)
                else set().union(*(varies.get(a, set()) for a in step.args))
            )
            varies[step.name] = set(own) & (positions | tapped) or positions  # alike at all positions, and inside alone
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

    @property
    def lines(self) -> bool:
        """Whether lines of inputs may be reduced before their windows are: nothing depends on a tap, and windows
        touch."""
        return not self.taps and not self.pairs and self.inner.stride <= self.inner.span

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

    def named(self, of: T) -> T:
        """A load or a store with the index in these variables."""
        return replace(of, access=replace(of.access, spelled=tuple(self.variables().items())))

    def count(self) -> str:
        """The count of positions of a mean, in C."""
        return " * ".join(
            f"{symbol('covered')}<{s.taps}, {s.counted[0]}, {s.counted[1]}>(out_{self.letter(s)} * {s.stride} - "
            f"{s.padding})"
            for s in self.window.slides
        )

    def places(self, above: Slide | None = None, down: int = 1) -> tuple[int, list[str]]:
        """The strips of one row of the program, and the statements that find the outputs of a ``strip``.

        A strip has ``down`` outputs of the dimension ``above``, and one of each other outer dimension.
        """
        lines, rest, strips = [], "strip", 1
        for slide in reversed([s for s in self.outer if s.stride]):
            letter, count = self.letter(slide), -(-slide.outputs // (down if slide is above else 1))
            number = f"static_cast<int>({rest} % {count})" if count > 1 else "0"
            if slide is above:
                lines.append(f"const int first_line = {number}{times(down)};")
            else:
                lines.append(f"const int out_{letter} = {number};")
            rest = f"{rest} / {count}" if count > 1 else rest
            strips *= count
        return strips, [*lines, f"const long long row = {rest};"]

    def outer_loop(self, slide: Slide, body: list[str]) -> list[str]:
        """The taps of an outer dimension one after the other, those outside left out."""
        letter = self.letter(slide)
        at = f"out_{letter}{times(slide.stride)} + " if slide.stride else ""
        head = [f"const int in_{letter} = {at}tap_{letter}{times(slide.dilation)}{minus(slide.padding)};"]
        beyond = outside(f"in_{letter}", -slide.padding, slide.last, slide.size)
        head += [f"if ({beyond}) continue;"] if beyond else []
        return block(f"for (int tap_{letter} = 0; tap_{letter} < {slide.taps}; ++tap_{letter})", [*head, *body])


def runs_across(program: Program) -> bool:
    """Whether vectors may go across the rows of a window: those lie side by side in memory, and no map depends on a
    tap."""
    if len(program.windows) != 1 or program.contraction or program.reductions or program.scans or not program.plain:
        return False
    parts, beside = WindowParts.of(program), program.row_loops[-1] if program.row_loops else None
    images = [x for x in parts.points if isinstance(x, Load)]
    if beside is None or not isinstance(beside.extent, int) or parts.taps or parts.pairs:
        return False
    return bool(images) and all(x.access.offset.coeff(beside.symbol) == 1 for x in images)


def times(factor: int) -> str:
    return f" * {factor}" if factor != 1 else ""


def minus(amount: int) -> str:
    return f" - {amount}" if amount > 0 else ""


def inside(name: str, first: int, last: int, size: int) -> str:
    """The condition that an index from ``first`` to ``last`` lies inside; empty where it always does."""
    return " && ".join([*([f"{name} >= 0"] if first < 0 else []), *([f"{name} < {size}"] if last >= size else [])])


def outside(name: str, first: int, last: int, size: int) -> str:
    """The condition that an index from ``first`` to ``last`` lies outside; empty where it never does."""
    return " || ".join([*([f"{name} < 0"] if first < 0 else []), *([f"{name} >= {size}"] if last >= size else [])])
