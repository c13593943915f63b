"""Calls with windows and scans, for tests on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from models import made, source

from kgen.problems.problem import LoadedProblem

LINE, IMAGE, VOLUME = "line", "image", "volume"
#: Inputs of a few columns, and of so many that several warps lie along a row.
INPUTS = {LINE: "torch.randn(2, 6, 79)", IMAGE: "torch.randn(2, 6, 9, 12)", VOLUME: "torch.randn(2, 4, 6, 7, 10)"}
WIDE_INPUTS = {LINE: "torch.randn(3, 6, 2051)", IMAGE: "torch.randn(3, 6, 36, 516)", VOLUME: "torch.randn(3, 4, 6, 19, 138)"}

#: The call of each case, with its input: the modules in it are made in ``__init__``.
WINDOWS = {
    "max 1d": ("nn.MaxPool1d(3)(line)", LINE),
    "max 1d dilated": ("nn.MaxPool1d(4, 1, 2, 3)(line)", LINE),
    "max 1d of wide windows": ("nn.MaxPool1d(35)(line)", LINE),
    "mean 1d of wide windows": ("nn.AvgPool1d(34)(line.tanh())", LINE),
    "max 2d between maps": ("nn.MaxPool2d(3, 2, 1, ceil_mode=True)(image.relu() * -2.0) + 1.0", IMAGE),
    "max 2d of a view": ("nn.MaxPool2d(2)(image.transpose(2, 3)).flatten(1)", IMAGE),
    "max 2d of padded rows": ("nn.MaxPool2d(3, 1)(F.pad(image, (0, 0, 1, 2)))", IMAGE),
    "mean 2d of two images": ("nn.AvgPool2d(3, 2, 1)(torch.cat((image, image * 2.0), 1))", IMAGE),
    "max 2d of one image": ("nn.MaxPool2d((3, 2), 1, 1)(line)", LINE),
    "max 3d": ("nn.MaxPool3d(3, 2, 1, 2)(volume)", VOLUME),
    "mean 1d": ("nn.AvgPool1d(4, 1, 2, count_include_pad=False)(line)", LINE),
    "mean 2d": ("nn.AvgPool2d(3)(image)", IMAGE),
    "mean 2d in ceil mode": ("nn.AvgPool2d(3, 2, 1, ceil_mode=True)(image)", IMAGE),
    "mean 2d of inner elements": ("nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)(image)", IMAGE),
    "mean 2d with a divisor": ("nn.AvgPool2d(3, 2, 1, divisor_override=5)(image)", IMAGE),
    "mean 3d": ("nn.AvgPool3d(3, 2, 1)(volume)", VOLUME),
    "adaptive": ("nn.AdaptiveAvgPool2d((3, 4))(image)", IMAGE),
    "adaptive to one": ("nn.AdaptiveAvgPool3d(1)(volume)", VOLUME),
    "nearest": ("F.interpolate(image, scale_factor=(2, 3)).tanh()", IMAGE),
    "depthwise 1d": ("nn.Conv1d(6, 6, 4, groups=6, stride=3)(line)", LINE),
    "depthwise 2d": ("nn.Conv2d(6, 6, 3, groups=6, padding=1)(torch.tanh(image))", IMAGE),
    "depthwise 2d, two outputs to a channel": ("nn.Conv2d(6, 12, (3, 5), groups=6, padding='same', bias=False)(image).relu()", IMAGE),
    "groups of two channels": ("nn.Conv2d(6, 9, 3, groups=3, stride=2, padding=2, dilation=2)(image)", IMAGE),
    "depthwise 2d of one pixel": ("nn.Conv2d(6, 6, 3, groups=6, stride=2, padding=1)(image[:, :, :1, :1].relu())", IMAGE),
    "depthwise 2d to one pixel": ("nn.Conv2d(6, 6, 3, groups=6)(image[:, :, :3, :3] * image[:, :, :1, :1].tanh())", IMAGE),
    "mean 2d of one pixel": ("nn.AvgPool2d(2, 1, 1)(image[:, :, :1, :1].tanh())", IMAGE),
    "depthwise 3d": ("nn.Conv3d(4, 4, 3, groups=4)(volume)", VOLUME),
}  # fmt: skip

SCANS = {
    "sum along rows": ("torch.cumsum(line, -1)", LINE),
    "sum between maps": ("torch.cumsum(line * line, 2) * line + 1.0", LINE),
    "sum along an outer axis": ("torch.cumsum(line, 1)", LINE),
    "sum of a view": ("torch.cumsum(line.transpose(1, 2), 1)", LINE),
    "product": ("torch.cumprod(image, 2).relu()", IMAGE),
    "sum from the end": ("torch.cumsum(line.flip(2), 2).flip(2)", LINE),
    "sum from the end of an outer axis": ("torch.cumsum(image.flip(1), 1).flip(1)", IMAGE),
    "sum of what stands before": ("torch.cumsum(torch.cat((torch.zeros_like(line[:, :, :1]), line), 2), 2)", LINE),
    "sum of what stands before, behind the sum": ("torch.cat((torch.zeros_like(line[:, :, :1]), torch.cumsum(line, 2)[:, :, :-1]), 2)", LINE),
    "sum of what stands behind": ("torch.cat((torch.cumsum(line.flip(2), 2).flip(2)[:, :, 1:], torch.zeros_like(line[:, :, :1])), 2)", LINE),
    "sum of integers": ("torch.cumsum((line * 9).long(), 1) + 1", LINE),
    "product of small integers": ("torch.cumprod((image.round().int() * 3 + 1), 2)", IMAGE),
    "positions of what is positive": ("torch.cumsum(line > 0, 2) - 1", LINE),
    "two sums side by side": ("torch.cumsum(line, 1) / (1.0 + torch.cumsum(line * line, 1))", LINE),
    "masked sum": ("torch.cumsum(line * (line[:, :1] * 2.0), 1)", LINE),
}  # fmt: skip

CASES = {**WINDOWS, **SCANS}


def problem(inputs: Mapping[str, str]) -> LoadedProblem:
    """One forward that returns the value of every call, its modules made once."""
    init, lines = [], []
    for number, (call, _) in enumerate(CASES.values()):
        if call.startswith("nn."):
            made_by, _, given = call.partition(")(")
            init.append(f"self.m{number} = {made_by})")
            call = f"self.m{number}({given}"
        lines.append(f"r{number} = {call}")
    returned = ", ".join(f"r{n}" for n in range(len(CASES)))
    return made(source("\n".join([*lines, f"return [{returned}]"]), ", ".join(inputs.values()), "\n".join(init), ", ".join(inputs)))
