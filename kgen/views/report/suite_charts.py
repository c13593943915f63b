"""The charts of a suite, in Vega-Lite, without their data: each takes the rows of :mod:`kgen.views.report.suite`."""

from __future__ import annotations

from typing import Any, Mapping

from kgen.views.report.charts import SCHEMA, Spec

#: Verdicts on problems of which only the control may be right.
_CONTROL = ("nothing to try", "not judged in time", "none right")

#: Colour and shape of each verdict, so that fast and slow are told apart at a glance, also without colours.
_COLOURS = {"faster": "var(--plan-3)", "same": "var(--muted)", "slower": "var(--bad)"} | dict.fromkeys(
    _CONTROL, "var(--muted)"
)
_SHAPES = {"faster": "triangle-up", "same": "circle", "slower": "triangle-down"} | dict.fromkeys(_CONTROL, "cross")

_TOOLTIP = {
    "problem": "problem",
    "verdict": "verdict",
    "figures": "over eager",
    "limit": "at the device's limits",
    "time": "time",
    "plan": "plan",
}


def _problems() -> Spec:
    """The speedup of each problem with its interval, beside its roofline; fields of ``Scored``."""
    problem = {"field": "problem", "type": "nominal", "sort": None, "title": None}
    colour, shape = _by_verdict(_COLOURS), _by_verdict(_SHAPES)
    tooltip = [{"field": field, "title": title, "type": "nominal"} for field, title in _TOOLTIP.items()]
    return {
        "height": {"step": 20},
        "data": {"name": "scored"},
        "layer": [
            {
                "mark": {"type": "rule", "strokeDash": [2, 3]},
                "data": {"values": [{"one": 1}]},
                "encoding": {"x": {"field": "one", "type": "quantitative"}},
            },
            {
                "mark": {"type": "tick", "thickness": 2, "size": 14, "color": "var(--limit)"},
                "encoding": {"y": problem, "x": _speedup("roof"), "tooltip": tooltip},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.6},
                "encoding": {"y": problem, "x": _speedup("low"), "x2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "y": problem,
                    "x": _speedup("speedup"),
                    "color": colour,
                    "shape": shape,
                    "tooltip": tooltip,
                },
            },
        ],
    }


def _by_verdict(looks: Mapping[str, str]) -> Spec:
    """One look for each verdict."""
    return {
        "field": "verdict",
        "type": "nominal",
        "title": "Over the fastest baseline",
        "scale": {"domain": list(looks), "range": list(looks.values())},
    }


def _speedup(field: str) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": "Speedup over eager (×)",
        "scale": {"type": "log", "nice": False, "padding": 12},
        "axis": {"tickCount": 6},
    }


def _fast() -> Spec:
    """The curve of ``fast_p``, with KernelBench's thresholds marked; fields of ``Fast``."""
    p: Spec = {
        "field": "p",
        "type": "quantitative",
        "title": "p: speedup over eager (×)",
        "scale": {"nice": False},
        "axis": {"tickCount": 8},
    }
    share: Spec = {
        "field": "share",
        "type": "quantitative",
        "title": "fast_p: share of all problems",
        "scale": {"domain": [0, 1]},
        "axis": {"format": ".0%"},
    }
    label: Mapping[str, Any] = {"type": "text", "align": "left", "baseline": "bottom", "dx": 6, "dy": -4}
    return {
        "height": 280,
        "layer": [
            {
                "data": {"name": "curve"},
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5},
                "encoding": {"x": p, "y": share},
            },
            {
                "data": {"name": "marked"},
                "mark": {"type": "point", "filled": True, "size": 60, "color": "var(--best)"},
                "encoding": {"x": p, "y": share},
            },
            {"data": {"name": "marked"}, "mark": label, "encoding": {"x": p, "y": share, "text": {"field": "label"}}},
        ],
    }


#: Every chart of a suite by its name.
CHARTS: Mapping[str, Spec] = {
    name: {"$schema": SCHEMA, "width": "container", **spec}
    for name, spec in {"problems": _problems(), "fast": _fast()}.items()
}
