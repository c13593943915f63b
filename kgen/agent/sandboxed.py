"""Templates of proposers, rendered: by Jinja's sandbox, in a process of its own with little time and memory.

A template is foreign text. Jinja's sandbox keeps it from Python's objects, and the limits end loops that never do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Mapping

from kgen.candidate import ParamValue

SECONDS = 10  #: of processor time
_BYTES = 1 << 30  #: of memory
_MOST_CHARACTERS = 1 << 20  #: of a rendered text

_RENDER = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({_BYTES}, {_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
given = json.load(sys.stdin)
options = dict(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
texts = ImmutableSandboxedEnvironment(**options)
try:
    found = {{"text": texts.from_string(given["text"]).render(**given["params"])}}
    if len(found["text"]) > {_MOST_CHARACTERS}:
        found = {{"fault": "it renders more than {_MOST_CHARACTERS} characters"}}
except Exception as error:
    found = {{"fault": f"{{type(error).__name__}}: {{error}}"}}
json.dump(found, sys.stdout)
"""


class TemplateFault(Exception):
    """A template that cannot be rendered; the message says why."""


def rendered(text: str, params: Mapping[str, ParamValue]) -> str:
    """The text of a template with parameters. Raises :class:`TemplateFault`, one line."""
    command = [sys.executable, "-I", "-c", _RENDER]
    given = json.dumps({"text": text, "params": dict(params)})
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=3 * SECONDS, env={})
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise TemplateFault(f"rendering it takes more than {SECONDS} s") from None
    except ValueError:
        raise TemplateFault(f"rendering it takes more than {SECONDS} s, or more memory than it may have") from None
    if "fault" in found:
        raise TemplateFault(" ".join(str(found["fault"]).split())[:300])
    return str(found["text"])
