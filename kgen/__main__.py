"""The start of the program: ``kgen`` and ``python -m kgen``. Ctrl-C ends it in one line while modules load, too."""

import os
import signal
import sys

_INTERRUPTED = 130  # exit code


def _leave(number: int, frame: object) -> None:
    """End at once: nothing has begun. An exception could be lost in the import of an extension module."""
    os.write(2, b"kgen: interrupted\n")
    os._exit(_INTERRUPTED)


def run() -> None:
    """Load the command line, and run one command."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # in the background, a shell ignores it
    if heard:
        signal.signal(signal.SIGINT, _leave)
    from kgen.cli import main

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="kgen")


if __name__ == "__main__":
    sys.exit(run())
