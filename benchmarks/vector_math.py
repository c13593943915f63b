"""The largest error and the speed of the vector functions of CPU kernels, against libm in double and float32.

    python benchmarks/vector_math.py [--stride N]

The script tests every N-th bit pattern of a float32. With a stride of 1, every float32, it takes some minutes on two
cores.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from _record import ROOT, record

FLAGS = ["-O3", "-std=c++17", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp"]
WIDEST = ["-mprefer-vector-width=512"]


def measure(stride: int, flags: list[str]) -> dict[str, list[str]]:
    """The columns that vector_math.cpp prints, by function."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "vector_math"
        headers = ROOT / "kgen" / "templates" / "cpu" / "functions"
        source = Path(__file__).with_suffix(".cpp")
        subprocess.run(["g++", *FLAGS, *flags, f"-I{headers}", source, "-o", program], check=True)
        printed = subprocess.run([program, str(stride)], check=True, capture_output=True, text=True).stdout
    return {name: columns for name, *columns in map(str.split, printed.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stride", type=int, default=251)
    stride = parser.parse_args().stride
    errors, widest = measure(stride, []), measure(0, WIDEST)
    rows = [
        {
            "function": name,
            "largest error, ulp": float(ulp),
            "at": float(at),
            "wrong special values": int(wrong),
            "ns": float(vector),
            "ns, 512-bit vectors": float(widest[name][3]),
            "ns, scalar libm": float(scalar),
        }
        for name, (ulp, at, wrong, vector, scalar) in errors.items()
    ]
    notes = (
        f"Errors over {'every float' if stride == 1 else f'every {stride}th float'}, against libm in double; "
        "`pow_x` is x^2.7, `pow_y` is 0.7^y. Nanoseconds for each element on one core, best of 1000 runs over 4096 "
        f"numbers in cache; `g++ {' '.join(FLAGS)}`, whose choice of vector width is the first column, and with "
        f"`{WIDEST[0]}`."
    )
    record("vector_math", "Vector functions of CPU kernels", rows, notes)


if __name__ == "__main__":
    main()
