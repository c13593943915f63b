"""The times of a candidate's kernels inside its file, from a profile that names functions of the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def inside_ms(functions: Sequence[str], profile: Mapping[str, float]) -> tuple[float | None, ...]:
    """Milliseconds of each kernel, ``None`` of one that the profile does not have.

    ``functions`` are the launchers of the kernels in their order; kernels of one launcher share its time evenly. The
    device's functions stand in a namespace that begins with a launcher's name, or have names that do. ``profile`` has
    their milliseconds in a call of the file.
    """
    uses, found = Counter(functions), dict[str, float]()
    longest_first = sorted(uses, key=len, reverse=True)
    for name, ms in profile.items():
        bare = name.removeprefix("void ")
        launcher = next((function for function in longest_first if bare.startswith(f"{function}_")), None)
        if launcher is not None:
            found[launcher] = found.get(launcher, 0.0) + ms
    return tuple(found[function] / uses[function] if function in found else None for function in functions)
