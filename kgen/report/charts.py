"""The charts, in Vega-Lite, without their data: each takes the rows of :mod:`kgen.report.rows` that its fields name.

Colours are variables of the page's style sheet. A chart is as wide as the page lets it; what differs between two
drawings of one chart is a parameter of it (``params``), which the page's script sets.
"""

from __future__ import annotations

from typing import Any, Mapping

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  #: names the language; nothing is loaded from there

_PLANS = [f"var(--plan-{number})" for number in range(1, 9)]
_INK, _MUTED, _BEST, _LIMIT, _BAD = (f"var(--{name})" for name in ("ink", "muted", "best", "limit", "bad"))

#: How every chart looks: fonts, axes and legends.
CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _MUTED,
        "titleColor": _INK,
        "gridColor": "var(--grid)",
        "domainColor": _MUTED,
        "tickColor": _MUTED,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": 500,
        "titlePadding": 8,
        "labelLimit": 220,
        "labelOverlap": "greedy",
        "labelSeparation": 8,
    },
    "legend": {
        "labelColor": _INK,
        "titleColor": _MUTED,
        "titleFontWeight": 500,
        "orient": "bottom",
        "columns": 1,
        "labelLimit": 420,
        "layout": {"bottom": {"anchor": "start", "direction": "vertical", "margin": 10}},
    },
    "title": {"color": _INK, "anchor": "start", "fontSize": 13, "fontWeight": 600, "subtitleColor": _MUTED},
    "text": {"color": _INK, "fontSize": 11},
    "rule": {"color": _MUTED},
    "range": {"category": _PLANS},
}

_SPEEDUP = "Speedup over the fastest PyTorch baseline (×)"

#: What hovering over a candidate shows, by the field of its row.
_CANDIDATE = {
    "candidate": "candidate",
    "plan": "plan",
    "params": "parameters",
    "figures": "speedup",
    "time": "time",
    "relative": "error",
    "judged": "judged",
}
_POINT = {**_CANDIDATE, "near": "drawn for"}  #: where points that lie together are drawn as one


def _tooltip(fields: Mapping[str, str]) -> list[Spec]:
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields.items()]


def _figure(field: str, title: str, **scale: Any) -> Spec:
    """A number along an axis that does not have to begin at zero."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": False, **scale},
        "axis": {"tickCount": 8},
    }


def _logarithm(field: str, title: str, **scale: Any) -> Spec:
    """A positive number along a logarithmic axis."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "nice": False, **scale},
        "axis": {"tickCount": 6},
    }


def _line_at_one(channel: str) -> Spec:
    """The fastest baseline: a speedup of 1."""
    return {
        "mark": {"type": "rule", "strokeDash": [2, 3]},
        "data": {"values": [{"one": 1}]},
        "encoding": {channel: {"field": "one", "type": "quantitative"}},
    }


#: One plan has one colour in every chart of a section: ``plans`` names them in their order. Baselines have none.
_PLANS_PARAM: Spec = {"name": "plans", "value": []}
_BY_PLAN: Spec = {
    "condition": {"test": "datum.plan === 'PyTorch'", "value": _MUTED},
    "field": "plan",
    "type": "nominal",
    "title": "Fusion plan",
    "scale": {"domain": {"expr": "plans"}},
}


def _error() -> Spec:
    """Speed against error; fields of ``Point``, ``Limit`` and ``Beyond``."""
    error = _logarithm("error", "Error (× PyTorch's own, in float32)", padding=24)
    return {
        "height": 320,
        "params": [_PLANS_PARAM],
        "data": {"name": "points"},
        "layer": [
            _line_at_one("x"),
            {
                "data": {"name": "limits"},
                "mark": {"type": "rule", "color": _LIMIT, "strokeDash": [6, 3]},
                "encoding": {"y": error},
            },
            {
                "data": {"name": "limits"},
                "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "color": _LIMIT},
                "encoding": {"x": {"value": 0}, "y": error, "text": {"field": "label"}},
            },
            {
                "data": {"name": "beyond"},
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "dy": -4, "color": _LIMIT},
                "encoding": {"x": {"value": "width"}, "y": {"value": 0}, "text": {"field": "label"}},
            },
            {
                "mark": {"type": "point", "filled": True, "strokeWidth": 3},
                "encoding": {
                    "x": _figure("speedup", _SPEEDUP, padding=12),
                    "y": error,
                    "color": _BY_PLAN,
                    "shape": {"field": "accuracy", "type": "nominal", "title": "Class of accuracy"},
                    "opacity": {"condition": {"test": "datum.final", "value": 1}, "value": 0.5},
                    "stroke": {"condition": {"test": "datum.best", "value": _BEST}, "value": None},
                    "size": {"condition": {"test": "datum.best", "value": 130}, "value": 46},
                    "order": {"field": "best"},
                    "tooltip": _tooltip(_POINT),
                },
            },
        ],
    }


def _progress() -> Spec:
    """Best so far over each sweep; fields of ``Point`` and ``Step``."""
    return {
        "height": 320,
        "layer": [
            _line_at_one("y"),
            {
                "data": {"name": "tried"},
                "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.35, "color": _MUTED},
                "encoding": {
                    "x": _figure("number", "Candidates tried"),
                    "y": _figure("speedup", _SPEEDUP, padding=12),
                    "tooltip": _tooltip(_POINT),
                },
            },
            {
                "data": {"name": "steps"},
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5},
                "encoding": {
                    "x": _figure("number", "Candidates tried"),
                    "y": _figure("speedup", _SPEEDUP),
                    "color": {"field": "sweep", "type": "nominal", "title": "Sweep", "sort": None},
                },
            },
            {
                "data": {"name": "steps"},
                "transform": [{"filter": "datum.improves"}],
                "mark": {"type": "point", "filled": True, "size": 50},
                "encoding": {
                    "x": _figure("number", "Candidates tried"),
                    "y": _figure("speedup", _SPEEDUP),
                    "color": {"field": "sweep", "type": "nominal", "sort": None},
                    "tooltip": _tooltip(_POINT),
                },
            },
        ],
    }


def _groups(above: bool) -> Spec:
    """Groups of candidates, such as those with one value of a parameter; fields of ``GroupRow``. Their names stand
    beside the bars or, being long, ``above`` them."""
    fields = {"name": "group", "count": "candidates", "middle": "median speedup", "best": "best speedup"}
    axis = None if above else {"labelLimit": 200}
    shared = {
        "y": {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": axis},
        "tooltip": _tooltip({**fields, "candidate": "fastest", "params": "its parameters"}),
    }
    scale = {"domainMin": {"expr": "low"}, "domainMax": {"expr": "high"}, "padding": 8}
    name = {"type": "text", "align": "left", "baseline": "bottom", "dx": 2, "dy": -10}
    return {
        "height": {"step": 44 if above else 26},
        "params": [{"name": "low", "value": 0}, {"name": "high", "value": 2}],
        "data": {"name": "groups"},
        "layer": [
            _line_at_one("x"),
            {
                "mark": {"type": "bar", "height": 12, "cornerRadius": 3, "opacity": 0.4, "color": _PLANS[0]},
                "encoding": {**shared, "x": _figure("low", "Speedup (×)", **scale), "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "tick", "thickness": 2.5, "size": 16, "color": _PLANS[0]},
                "encoding": {**shared, "x": _figure("middle", "Speedup (×)", **scale)},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "color": _BEST},
                "encoding": {**shared, "x": _figure("best", "Speedup (×)", **scale)},
            },
            *([{"mark": name, "encoding": {**shared, "x": {"value": 0}, "text": {"field": "name"}}}] if above else []),
        ],
    }


def _heat() -> Spec:
    """Two parameters together; fields of ``CellRow``. The script names the axes."""
    fields = {"x": "across", "y": "down", "count": "candidates", "figures": "best speedup"}
    dark = {"test": "datum.speedup < middle", "value": "white"}
    return {
        "height": {"step": 34},
        "params": [{"name": "middle", "value": 1}],
        "data": {"name": "cells"},
        "encoding": {
            "x": {"field": "x", "type": "ordinal", "sort": None, "axis": {"labelAngle": 0, "labelSeparation": 1}},
            "y": {"field": "y", "type": "ordinal", "sort": None},
            "tooltip": _tooltip({**fields, "candidate": "fastest", "params": "its parameters"}),
        },
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 3, "stroke": "var(--card)", "strokeWidth": 2},
                "encoding": {
                    "color": {
                        "field": "speedup",
                        "type": "quantitative",
                        "title": "Best speedup (×)",
                        "scale": {"scheme": "viridis", "zero": False},
                        "legend": {"gradientLength": 180, "direction": "horizontal", "format": ".2f"},
                    }
                },
            },
            {
                "mark": {"type": "text", "fontWeight": 500},
                "encoding": {
                    "text": {"field": "speedup", "type": "quantitative", "format": ".3f"},
                    "color": {"condition": dark, "value": "black"},
                },
            },
        ],
    }


def _roofline() -> Spec:
    """Achieved rates below the device's ceilings, both axes logarithmic; fields of ``Roof`` and ``Reached``."""
    intensity = _logarithm("intensity", "Arithmetic intensity (operations per byte moved)")
    rate = _logarithm("tflops", "Achieved (TFLOP/s)", padding=10)
    tooltip = _tooltip({**_CANDIDATE, "rate": "achieved"})
    level = {"type": "text", "align": "right", "baseline": "bottom", "dy": -4, "color": _LIMIT}
    sloped = {"type": "text", "align": "left", "baseline": "top", "dx": 10, "color": _LIMIT}
    return {
        "height": 320,
        "params": [_PLANS_PARAM],
        "layer": [
            {
                "data": {"name": "roofs"},
                "mark": {"type": "line", "strokeWidth": 2, "color": _LIMIT},
                "encoding": {"x": intensity, "y": rate, "detail": {"field": "type"}},
            },
            {
                "data": {"name": "roofs"},
                "mark": level,
                "encoding": {"x": intensity, "y": rate, "text": {"field": "level"}},
            },
            {
                "data": {"name": "roofs"},
                "mark": sloped,
                "encoding": {"x": intensity, "y": rate, "text": {"field": "sloped"}},
            },
            {
                "data": {"name": "reached"},
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.8},
                "encoding": {"x": intensity, "y": rate, "color": _BY_PLAN, "tooltip": tooltip},
            },
        ],
    }


def _bandwidth() -> Spec:
    """Achieved bytes per second of problems without products; fields of ``Roof`` and ``Reached``."""
    rate = _figure("gbytes", "Achieved (GB/s)", zero=True)
    tooltip = _tooltip({**_CANDIDATE, "rate": "achieved"})
    return {
        "height": {"step": 22},
        "params": [_PLANS_PARAM],
        "layer": [
            {
                "data": {"name": "reached"},
                "mark": {"type": "bar", "cornerRadiusEnd": 3},
                "encoding": {
                    "x": rate,
                    "y": {"field": "candidate", "type": "nominal", "sort": None, "title": None},
                    "color": _BY_PLAN,
                    "tooltip": tooltip,
                },
            },
            {
                "data": {"name": "roofs"},
                "mark": {"type": "rule", "color": _LIMIT, "strokeWidth": 2},
                "encoding": {"x": rate, "tooltip": _tooltip({"sloped": "ceiling"})},
            },
        ],
    }


def _counts() -> Spec:
    """How many candidates, by kind; fields of ``Count``."""
    return {
        "height": {"step": 26},
        "data": {"name": "counts"},
        "encoding": {
            "y": {"field": "kind", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "count", "type": "quantitative", "title": "Candidates", "axis": {"tickMinStep": 1}},
            "tooltip": _tooltip({"kind": "kind", "count": "candidates", "example": "for example", "reason": "reason"}),
        },
        "layer": [
            {"mark": {"type": "bar", "cornerRadiusEnd": 3, "color": _BAD}},
            {"mark": {"type": "text", "align": "left", "dx": 4}, "encoding": {"text": {"field": "count"}}},
        ],
    }


#: Every chart of the page by its name.
CHARTS: Mapping[str, Spec] = {
    name: {"$schema": SCHEMA, "width": "container", **spec}
    for name, spec in {
        "error": _error(),
        "progress": _progress(),
        "plans": _groups(above=True),
        "groups": _groups(above=False),
        "heat": _heat(),
        "roofline": _roofline(),
        "bandwidth": _bandwidth(),
        "counts": _counts(),
    }.items()
}
