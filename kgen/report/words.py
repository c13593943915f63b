"""What parameters mean, for readers who have not seen the templates."""

from __future__ import annotations

#: By the name of the axis. One that is not here is shown by its name alone.
AXES = {
    "band": "columns of tiles that neighbouring blocks share, for the L2 cache",
    "block": "threads in a block",
    "chunk": "rows that a thread takes at once",
    "cluster": "blocks that share one part of the product",
    "combine": "how parts of a sum are put together",
    "index": "whether threads are laid out in tiles or along the whole tensor",
    "items": "vectors that a thread handles",
    "launch": "whether the kernel is launched while the one before it ends",
    "lines": "rows that are summed before sums are put together",
    "output": "whether the result is written over the library's",
    "products": "products on tensor cores that make one in float32",
    "reduction": "how threads reduce: shuffles in a warp, or a tree in shared memory",
    "row": "whether a row is kept on chip or read again",
    "row_per": "whether a block or a warp takes a row",
    "rows": "rows that a block takes at once",
    "softmax": "one sweep with a running maximum, or two",
    "splits": "parts that a sum is split into, for more blocks",
    "stages": "tiles that are loaded ahead",
    "tile": "elements that are worked on at a time",
    "variant": "generation of tensor cores",
    "vec": "elements in one load or store",
    "vector_bits": "width of the vectors that the compiler prefers",
}


def meaning(parameter: str) -> str:
    """``k0.block`` as ``kernel 1: threads in a block``."""
    kernel, _, axis = parameter.rpartition(".")
    number = kernel.rpartition("k")[2]
    where = f"kernel {int(number) + 1}" if number.isdigit() else kernel
    return ": ".join(part for part in (where, AXES.get(axis, axis)) if part)
