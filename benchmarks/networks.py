"""Sweep whole networks in eval mode on a GPU, as transformers and torchvision build them, and record one row for each.

    python benchmarks/networks.py [--only REGEX] [--dtype bfloat16] [--time 240] [--baselines eager,compile] [--shard 1/2]

The networks are those of ``problems/models`` and ``network_problems/vision.py``, at the sizes that their files name, and Llama of
four layers. Each is one sweep from nothing. A row that is recorded already is skipped (``--again`` repeats). ``--shard
1/2`` takes every second network and records it apart, so that two GPUs share the work; ``--merge`` joins such records.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from statistics import geometric_mean

import kernelbench
from _record import RESULTS, ROOT, Cell, conditions, record

NAME = "networks"
TITLE = "Networks in eval mode"
MODELS, VISION = ROOT / "problems" / "models", ROOT / "benchmarks" / "network_problems" / "vision.py"
#: File and overrides by the name of the row, the networks with goals first.
NETWORKS: dict[str, tuple[Path, dict[str, int | str]]] = {
    "BERT base": (MODELS / "bert.py", {}),
    "ResNet-50": (VISION, {"network": "resnet50", "batch_size": 64}),
    "Llama, 4 layers": (MODELS / "llama_blocks.py", {"layers": 4}),
    "ConvNeXt tiny": (VISION, {"network": "convnext_tiny", "batch_size": 32}),
    "GPT-2": (MODELS / "gpt2.py", {}),
    "ViT base": (MODELS / "vit.py", {}),
    "Whisper encoder": (MODELS / "whisper_encoder.py", {}),
    "T5 base encoder": (MODELS / "t5_encoder.py", {}),
    "EfficientNet-B0": (VISION, {"network": "efficientnet_b0", "batch_size": 32}),
    "MobileNetV3": (VISION, {"network": "mobilenet_v3_large", "batch_size": 64}),
    "Swin tiny": (VISION, {"network": "swin_t", "batch_size": 32}),
    "U-Net": (VISION.with_name("unet.py"), {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression over the networks' names")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="a half type, in a record of its own")
    parser.add_argument("--time", type=int, default=240, help="seconds of each sweep")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no sweep after so many seconds")
    parser.add_argument("--baselines", default="eager,compile")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="take every N-th network, from the I-th")
    parser.add_argument("--again", action="store_true", help="sweep recorded networks again")
    parser.add_argument("--merge", action="store_true", help="join the records of shards instead")
    options = parser.parse_args()
    whole = "_".join(filter(None, (NAME, options.dtype)))
    if options.merge:
        parts = sorted(RESULTS.glob(f"{whole}_part*.json"))
        _write(whole, [row for part in (whole, *(path.stem for path in parts)) for row in kernelbench.recorded(part)])
        return
    mine, shards = map(int, options.shard.split("/"))
    name = whole if shards == 1 else f"{whole}_part{mine}"
    rows = {row["network"]: row for row in kernelbench.recorded(name)}
    began = time.monotonic()
    for network in [n for n in NETWORKS if re.search(options.only, n)][mine - 1 :: shards]:
        if time.monotonic() - began < options.seconds and (options.again or network not in rows):
            rows[network] = _swept(network, options)
            _write(name, list(rows.values()))


def _swept(network: str, options: argparse.Namespace) -> dict[str, Cell]:
    """The row of one network."""
    file, sizes = NETWORKS[network]
    arguments = argparse.Namespace(
        device="cuda", budget=1_000, baselines=options.baselines, cut=False, dtype=options.dtype, accuracy=None, time=options.time,
        sizes=[f"{key}={value!r}" for key, value in sizes.items()],
    )  # fmt: skip
    where = conditions()
    row = kernelbench.sweep(file, arguments, where.commit, ["--mode", "eval"])
    print(json.dumps(row), file=sys.stderr, flush=True)
    kept = ("verdict", "ms", "speedup", "low", "high", "eager ms", "compile ms", "error / PyTorch's", "right", "tried",
            "failed as", "seconds", "exit", "commit", "reason")  # fmt: skip
    steps = str(row["plan"] or "").split(" + ")
    library = sum("(library)" in step for step in steps)
    counts: dict[str, Cell] = {"kernels": len(steps) - library if row["plan"] else None, "library calls": library if row["plan"] else None}
    return {"network": network, **{key: row[key] for key in kept}, **counts, "gpu": where.gpu.partition(",")[0]}


def _write(name: str, rows: list[dict[str, Cell]]) -> None:
    order = list(NETWORKS)
    speedups = [float(row["speedup"]) for row in rows if row["speedup"]]
    mean = f"{geometric_mean(speedups):.2f}x over the best baseline in the geometric mean. " if speedups else ""
    note = f"{len(rows)} networks. {mean}Each is one sweep from nothing, in eval mode, in accuracy class `pytorch`."
    record(name, TITLE, sorted(rows, key=lambda row: order.index(str(row["network"]))), note)


if __name__ == "__main__":
    main()
