"""How long whole processes of the command line take: ``kgen --help``, and ``kgen history`` on a small database.

    python benchmarks/cli_startup.py [--repeats N] [--db URL]

Beside each stands a process of the same Python that imports only the libraries that the command cannot do without: the
difference is kgen's own work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from _record import ROOT, record

#: The command, and the imports that it cannot do without.
SUBJECTS = [
    (["--help"], "import click"),
    (["history"], "import click, rich.console, rich.table, sqlalchemy.orm"),
]


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """Wall seconds of one process, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--db", help="database for `kgen history` (default: a new, empty one)")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": home}
        environment.update({"KGEN_DB": arguments.db} if arguments.db else {})
        for command, imports in SUBJECTS:
            kgen = [sys.executable, "-m", "kgen", *command]
            bare = [sys.executable, "-c", imports]
            for process in (kgen, bare):  # compiles bytecode, makes the database
                seconds(process, environment)
            pairs = [(seconds(kgen, environment), seconds(bare, environment)) for _ in range(arguments.repeats)]
            whole, libraries = (statistics.median(side) for side in zip(*pairs))
            rows.append(
                {
                    "command": "kgen " + " ".join(command),
                    "whole process, s": whole,
                    "libraries alone, s": libraries,
                    "kgen's own, s": whole - libraries,
                }
            )
    notes = (
        f"Medians of {arguments.repeats} processes each, taken in turn. Libraries alone: a process that imports only "
        "what the command cannot do without."
    )
    record("cli_startup", "Start of the command line", rows, notes)


if __name__ == "__main__":
    main()
