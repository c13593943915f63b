"""The question to a language model: the problem, the device, kgen's plans, the best so far, and what failed."""

from __future__ import annotations

from dataclasses import asdict

from kgen.agent.proposer import Context
from kgen.devices.kinds import kind_of

FAILURES = 4  #: the last ones are shown
PLANS = 4
_MOST_SOURCE = 24_000  #: characters of the best so far


def messages(context: Context) -> tuple[str, str]:
    """The text for the system's role and that for the user's."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    texts = Environment(
        loader=PackageLoader("kgen.agent", ""), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    best = context.best
    limits = {k: v for k, v in asdict(context.hardware).items() if v and k not in ("name", "arch", "device_type")}
    question = texts.get_template("prompt.md.j2").render(
        problem=context.problem,
        hardware=context.hardware,
        limits=limits,
        plans=context.plans[:PLANS],
        baselines=context.baselines,
        best=best,
        source=context.sources.get(best.candidate or "", "")[:_MOST_SOURCE] if best else "",
        failures=context.failures[-FAILURES:],
        found=context.found,
        graphs=context.graphs,
        schedules=context.schedules,
        tried=len(context.verdicts),
    )
    return texts.get_template("system.md.j2").render(
        language="CUDA" if kind_of(context.hardware.device_type).accelerator else "C++"
    ).strip(), question.strip()
