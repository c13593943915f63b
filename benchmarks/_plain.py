"""One step of a plain pipeline, in its own Python process: ``python _plain.py PROBLEM CANDIDATE DEVICE``.

It executes both files, builds the candidate's ``load_inline`` with torch's headers, compares the outputs, and times
both. It generates no Python bindings, because the candidates have none. Bindings would compile even longer.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch
from torch.utils import cpp_extension

CALLS = 20  # timed calls of each module

_load_inline = cpp_extension.load_inline


def load_inline(**arguments: Any) -> Any:
    """``load_inline`` with torch's headers, which is its default."""
    return _load_inline(**arguments | {"no_implicit_headers": False})


def seconds(call: Callable[[], Any], cuda: bool) -> float:
    """The mean of :data:`CALLS` calls, after one that is not counted."""
    call()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / CALLS


def executed(path: str) -> dict[str, Any]:
    """The namespace of the file at ``path``, executed."""
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
