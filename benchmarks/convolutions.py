"""The library's convolutions on a GPU: dtypes and layouts, the cost of a cast, and two limits.

    python benchmarks/convolutions.py

The sizes are those of eight KernelBench problems. The library computes each in float32, TF32 and float16, with images
in NCHW and channels last. Subjects of one size are timed interleaved, by device events with a cold cache.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _record import Cell, record
from products import milliseconds

from kgen.devices.hardware import Ceilings, gpu

_LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}


@dataclass(frozen=True)
class Size:
    """One convolution, named after its problem: images of ``channels_in`` by ``pixels``, a square kernel."""

    problem: str
    images: int
    channels_in: int
    channels_out: int
    pixels: tuple[int, ...]
    kernel: int
    padding: int = 0
    transposed: bool = False

    @property
    def module(self) -> torch.nn.Module:
        sizes = self.channels_in, self.channels_out, self.kernel
        if self.transposed:
            return getattr(torch.nn, f"ConvTranspose{len(self.pixels)}d")(*sizes, stride=2, padding=self.padding, output_padding=1)
        return getattr(torch.nn, f"Conv{len(self.pixels)}d")(*sizes, padding=self.padding)

    @property
    def images_in(self) -> torch.Tensor:
        return torch.rand(self.images, self.channels_in, *self.pixels, device="cuda")


SIZES = (
    Size("level 1, 63", 16, 16, 128, (1024, 1024), 3),
    Size("level 1, 54", 16, 3, 64, (64, 64, 64), 3),
    Size("level 2, 31", 128, 64, 128, (128, 128), 3),
    Size("level 2, 71", 128, 8, 64, (128, 128), 3),
    Size("level 2, 47", 16, 32, 64, (32, 64, 64), 3),
    Size("level 2, 2", 128, 64, 64, (128, 128), 3, 1, transposed=True),
    Size("256 channels", 64, 256, 256, (56, 56), 3, 1),
    Size("512 channels", 64, 512, 512, (28, 28), 3, 1),
)


def rows_of(size: Size, ceilings: Ceilings) -> list[dict[str, Cell]]:
    """A row for each dtype and layout of one size."""
    torch.manual_seed(0)
    x, module = size.images_in, size.module.cuda()
    layout = _LAYOUTS[len(size.pixels)]
    subjects: dict[str, Callable[[], object]] = {"cast": lambda: x.to(torch.float16, memory_format=layout)}
    for name, dtype in (("float32", torch.float32), ("tf32", torch.float32), ("float16", torch.float16)):
        for form, memory_format in (("NCHW", torch.contiguous_format), ("channels last", layout)):
            subjects[f"{name}, {form}"] = _call(size, x, dtype, memory_format, name == "tf32")
    times = milliseconds(subjects)
    out = module(x)
    # Each weight meets each pixel of the smaller image: that of the input where the convolution is transposed.
    operations = 2 * math.prod(module.weight.shape) * min(x.numel() // size.channels_in, out.numel() // size.channels_out)
    moved = 4 * (x.numel() + module.weight.numel() + out.numel())
    rows: list[dict[str, Cell]] = []
    for name, ms in times.items():
        rows.append({
            "convolution": size.problem,
            "way": name,
            "ms": ms,
            "TFLOP/s": None if name == "cast" else operations / ms / 1e9,
            "of the cast": ms / times["cast"],
            "limit by bytes, ms": moved / ceilings.copy_gbytes_per_second / 1e6,
            "limit by float16, ms": operations / ceilings.float16_tflops / 1e9,
        })  # fmt: skip
    return rows


def _call(size: Size, x: torch.Tensor, dtype: torch.dtype, memory_format: torch.memory_format, tf32: bool) -> Callable[[], object]:
    """The library's convolution of images that have the dtype and the layout already."""
    images = x.to(dtype, memory_format=memory_format)
    module = size.module.cuda().to(dtype, memory_format=memory_format)

    def call() -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
            return module(images)

    return call


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    ceilings = gpu("cuda").ceilings
    rows: list[dict[str, Cell]] = []
    with torch.no_grad():
        for size in SIZES:
            rows += rows_of(size, ceilings)
            torch.cuda.empty_cache()
    notes = (
        "Medians with a cold cache. The cast turns NCHW float32 into channels-last float16. The limit by bytes counts the "
        "images, the weight and the result once, in float32."
    )
    record("convolutions", "The library's convolutions", rows, notes)


if __name__ == "__main__":
    main()
