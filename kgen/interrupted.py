"""The end of the program by Ctrl-C, where an exception would be lost."""

from __future__ import annotations

import os
from typing import NoReturn

EXIT_CODE = 130


def leave(number: int, frame: object) -> NoReturn:
    """A signal's handler that ends the process at once, in one line. No clean-up runs."""
    os.write(2, b"kgen: interrupted\n")
    os._exit(EXIT_CODE)
