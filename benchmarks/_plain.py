"""One step of a plain pipeline, in a Python of its own: ``python _plain.py PROBLEM CANDIDATE DEVICE``.

It does what one would write first: execute both files, let the candidate's ``load_inline`` build with torch's headers,
compare the two outputs, and time both. (Bindings, which ``load_inline`` writes by default, are left out: the candidates
have none. They would take longer to compile.)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch
from torch.utils import cpp_extension

CALLS = 20

_load_inline = cpp_extension.load_inline


def load_inline(**arguments: Any) -> Any:
    """As everyone calls it: with torch's headers."""
    return _load_inline(**arguments | {"no_implicit_headers": False})


def seconds(call: Callable[[], Any], cuda: bool) -> float:
    call()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / CALLS


def executed(path: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": Path(path).stem}
    exec(compile(Path(path).read_text(), path, "exec"), namespace)
    return namespace


def main(problem_file: str, candidate_file: str, device: str) -> None:
    cpp_extension.load_inline = load_inline
    problem = executed(problem_file)
    candidate = executed(candidate_file)
    with torch.device(device), torch.no_grad():
        arguments = problem["get_init_inputs"]() if "get_init_inputs" in problem else []
        model, new = problem["Model"](*arguments), candidate["ModelNew"](*arguments)
        new.load_state_dict(model.state_dict())
        inputs = problem["get_inputs"]()
        torch.testing.assert_close(new(*inputs), model(*inputs), atol=1e-4, rtol=1e-4)
        print(*(seconds(lambda: module(*inputs), device != "cpu") for module in (model, new)))


if __name__ == "__main__":
    main(*sys.argv[1:])
