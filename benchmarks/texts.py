"""Whether the texts of candidates are what they were at another commit: the first four plans of each problem, plainest.

    python benchmarks/texts.py FOLDER_OR_FILE... [--at COMMIT] [--jobs 2]

It renders at both commits, the other one from a work tree of its own, and records the problems whose texts differ. The
architectures are sm_90 and sm_80; files of this project's ``problems`` folder are rendered for the CPU, too. ``--print``
prints the hashes of this tree alone, as JSON: the other tree is asked so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAME = "texts"
FIRST = 4  #: plans of each problem
ARCHES = ("sm_90", "sm_80", "cpu")

Texts = dict[str, list[str]]  #: hashes of the texts by architecture


def texts(file: Path) -> Texts:
    """The hashes of the problem's first texts; a problem that is refused has the reason instead."""
    from kgen.errors import KgenError
    from kgen.problems.problem import load, read_problem, resolve_mode, without_values
    from kgen.protocol import Accuracy
    from kgen.tuning.design import captured

    found: Texts = {}
    try:
        loaded = load(read_problem(str(file)))
        loaded = resolve_mode(loaded, without_values(loaded.model))
        for kind, arches in (("cuda", ARCHES[:2]), ("cpu", ARCHES[2:])):
            if kind == "cpu" and file.resolve().parent != ROOT / "problems":
                continue
            graphs = captured(loaded, kind)
            for arch in arches:
                accuracy = Accuracy.PYTORCH if kind == "cuda" else Accuracy.FP32
                found[arch] = first_texts(loaded.problem, graphs, arch, accuracy)
    except KgenError as error:
        found["refused"] = [str(error)]
    return found


def first_texts(problem: object, graphs: object, arch: str, accuracy: object) -> list[str]:
    from kgen.devices.hardware import cpu, for_arch
    from kgen.tuning import precision
    from kgen.tuning.design import Design
    from kgen.tuning.search.points import Point

    if arch != "cpu":
        marked = tuple((mode, precision.predicted(graph)[0]) for mode, graph in graphs.graphs)
        graphs = replace(graphs, graphs=marked)
    # The same limits on every machine.
    hardware = cpu() if arch == "cpu" else for_arch(arch)
    design = Design(problem, graphs, hardware, accuracy)
    points = [Point(n, o.plainest) for n, o in enumerate(design.options[:FIRST]) if o.plainest is not None]
    return [hashlib.sha256(design.candidate(point).source.encode()).hexdigest() for point in points]


def all_texts(files: Sequence[Path], jobs: int) -> dict[str, Texts]:
    with get_context("spawn").Pool(jobs, maxtasksperchild=20) as pool:
        return dict(zip((f"{file.parent.name}/{file.name}" for file in files), pool.map(texts, files, chunksize=1)))


def _in_tree(file: Path) -> Path:
    """A file of this tree as one of the tree that a process runs in; another as it is."""
    path = file.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def at(commit: str, files: Sequence[Path], jobs: int) -> dict[str, Texts]:
    """The same at another commit, by the script that is in its tree: modules may have had other names."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", tree, commit], check=True, capture_output=True)
        try:
            words = [sys.executable, tree / "benchmarks" / Path(__file__).name, "--print", "--jobs", str(jobs), *map(_in_tree, files)]
            environment = os.environ | {"PYTHONPATH": str(tree)}
            ran = subprocess.run(words, cwd=tree, env=environment, check=True, capture_output=True, text=True)
            return json.loads(ran.stdout)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True, capture_output=True)


def compared(now: dict[str, Texts], then: dict[str, Texts]) -> list[dict[str, object]]:
    """A row for each problem and architecture: how many texts there are, and how many are not what they were."""
    return [
        {"problem": problem, "arch": arch, "texts": len(now[problem].get(arch, ())),
         "changed": sum(x != y for x, y in zip(now[problem].get(arch, ()), then[problem].get(arch, ())))
         + abs(len(now[problem].get(arch, ())) - len(then[problem].get(arch, ())))}
        for problem in now for arch in sorted({*now[problem], *then[problem]})
    ]  # fmt: skip


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="problem files, or folders of them")
    parser.add_argument("--at", default="HEAD", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--print", action="store_true", help="print this tree's hashes")
    options = parser.parse_args(words)
    files = sorted(file for path in options.paths for file in (path.glob("*.py") if path.is_dir() else [path]))
    found = all_texts(files, options.jobs)
    if options.print:
        print(json.dumps(found))
        return
    from _record import record

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", options.at], check=True, capture_output=True, text=True)
    rows = compared(found, at(options.at, files, options.jobs))
    changed = [row for row in rows if row["changed"]]
    note = f"{sum(row['texts'] for row in rows)} texts of {len(files)} problems beside those at {commit.stdout.strip()}: {len(changed)} rows changed."
    print(note)
    record(NAME, "Texts of first candidates beside another commit", changed or rows[:1], note)


if __name__ == "__main__":
    main(sys.argv[1:])
