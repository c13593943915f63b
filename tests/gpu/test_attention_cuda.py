"""Attention in one kernel on a GPU: values over a covering set of its space, against float64.

Each case runs in a process of its own: warpgroups that wait for each other for ever cost that process alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

_SECONDS = 120  # of a case, most of them the compiler's
_MOST = 12  # combinations of a case

#: The schedule, forward, inputs and dtype. Lengths are no multiples of tiles; matrices are more than blocks that run at once.
CASES = {
    "a diagonal": ("tiled_attention", "return F.scaled_dot_product_attention(x, x, x, is_causal=True)", "torch.randn(5, 60, 200, 64)", "x", "float32"),
    "a mask": ("tiled_attention", "return F.scaled_dot_product_attention(x, x, x, m)", "torch.randn(5, 60, 200, 80), torch.randn(200, 200)", "x, m", "float32"),
    "a diagonal in bfloat16": ("tiled_attention", "return F.scaled_dot_product_attention(x, x, x, is_causal=True)", "torch.randn(5, 60, 600, 128)", "x", "bfloat16"),
    "a mask in bfloat16": ("tiled_attention", "return F.scaled_dot_product_attention(x, x, x, m)", "torch.randn(5, 60, 200, 64), torch.randn(200, 200)", "x, m", "bfloat16"),
    "wide heads": ("wide_attention", "return F.scaled_dot_product_attention(x, x, x)", "torch.randn(3, 20, 512, 1024)", "x", "float32"),
    "wide heads under a mask": ("wide_attention", "return F.scaled_dot_product_attention(x, y, y, m)",
                                "torch.randn(3, 20, 256, 200), torch.randn(3, 20, 300, 200), torch.randn(256, 300)", "x, y, m", "float32"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_accurate_as_eager(case: str, tmp_path: Path) -> None:
    environment = os.environ | {"TORCH_EXTENSIONS_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, __file__, case], env=environment, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def run(case: str) -> None:
    """Compare the case's kernels with float64, and each with itself."""
    import torch
    from models import design, made, module, source

    from kgen.devices.hardware import gpu
    from kgen.protocol import Accuracy
    from kgen.tuning.search import Point

    schedule, forward, inputs, arguments, dtype = CASES[case]
    given_as = inputs.replace("), torch", f").{dtype}(), torch") + f".{dtype}()" if dtype != "float32" else inputs
    loaded = made(source(forward, given_as, "", arguments), "eval")
    of = design(loaded, gpu("cuda"), Accuracy.PYTORCH)
    number = next(n for n, o in enumerate(of.options) if o.name.startswith(f"{schedule}["))
    (kernel,) = of.options[number].kernels
    found = of.choices[number].spaces[0].covering_set()
    chosen = [kernel.index(params) for params in found[:: -(-len(found) // _MOST)]]
    with ThreadPoolExecutor() as pool:
        modules = list(pool.map(module, [of.candidate(Point(number, (n,))) for n in chosen]))
    torch.manual_seed(0)
    model, given = loaded.model().cuda(), [x.cuda() for x in loaded.inputs()]
    with torch.no_grad():
        first = [x[:1, :4] if x.dim() == 4 else x for x in given]
        exact = model(*(x.double() for x in first))
        allowed = 2.0 * (model(*given)[:1, :4] - exact).norm()
        for n, new in zip(chosen, modules):
            print(dict(kernel[n]), flush=True)
            one = new.ModelNew().cuda()
            result = one(*given)
            assert (result[:1, :4] - exact).norm() <= allowed
            assert torch.equal(one(*given), result)
            last = [x[-1:, -4:] if x.dim() == 4 else x for x in given]
            assert (result[-1:, -4:] - model(*(x.double() for x in last))).norm() <= 2 * allowed


if __name__ == "__main__":
    run(sys.argv[1])
