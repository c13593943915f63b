"""The charts, in Vega-Lite, without their data: each takes the rows of :mod:`kgen.views.report.rows` that its fields
name.

Colours are variables of the page's style sheet. A chart fills the width of its place on the page. The page's script
sets the parameters (``params``) of a chart, which differ between two drawings of it.
"""

from __future__ import annotations

from typing import Any, Mapping

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  #: names the language; nothing is loaded from there

_PLANS = [f"var(--plan-{number})" for number in range(1, 9)]
_INK, _MUTED, _BEST, _LIMIT, _BAD, _SLOW = (
    f"var(--{name})" for name in ("ink", "muted", "best", "limit", "bad", "slow")
)

#: The look of every chart: fonts, axes and legends.
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

#: The tooltip of a candidate: titles by the field of its row.
_CANDIDATE = {
    "candidate": "candidate",
    "plan": "plan",
    "params": "parameters",
    "figures": "speedup",
    "time": "time",
    "relative": "error",
    "judged": "judged",
}
_POINT = {**_CANDIDATE, "near": "drawn for"}  #: in charts that draw near points as one


def _tooltip(fields: Mapping[str, str]) -> list[Spec]:
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields.items()]


def _figure(field: str, title: str, **scale: Any) -> Spec:
    """A number along an axis that need not begin at zero."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": False, **scale},
        "axis": {"tickCount": 8},
    }


#: Ticks at about eight whole numbers: steps of 1, 2 or 5 times a power of ten. Vega's own may be fractions.
_PART = "(span(domain('x')) / 8)"
_POWER = f"pow(10, floor(log({_PART}) / LN10))"
_STEP = f"max(1, {_POWER} * ({_PART} <= {_POWER} ? 1 : {_PART} <= 2 * {_POWER} ? 2 : {_PART} <= 5 * {_POWER} ? 5 : 10))"
_WHOLE = f"sequence(ceil(domain('x')[0] / {_STEP}) * {_STEP}, domain('x')[1], {_STEP})"


def _count(field: str, title: str, **scale: Any) -> Spec:
    """A whole number along the x axis, with ticks at whole numbers."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"nice": False, **scale},
        "axis": {"values": {"expr": _WHOLE}, "format": ",d"},
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


def _beside_one(channel: str) -> list[Spec]:
    """The fastest baseline: a line at a speedup of 1, on whose shaded side candidates are slower than PyTorch."""
    one, end = {"datum": 1, "type": "quantitative"}, {"value": 0} if channel == "x" else {"value": "height"}
    data = {"values": [{}]}
    return [
        {
            "mark": {"type": "rect", "color": _SLOW, "opacity": 0.07, "tooltip": None},
            "data": data,
            "encoding": {channel: one, f"{channel}2": end},
        },
        {"mark": {"type": "rule", "strokeDash": [2, 3]}, "data": data, "encoding": {channel: one}},
    ]


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
            *_beside_one("x"),
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
    """The best screening so far over each sweep; fields of ``Point`` and ``Step``."""
    return {
        "height": 320,
        "layer": [
            *_beside_one("y"),
            {
                "data": {"name": "tried"},
                "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.35, "color": _MUTED},
                "encoding": {
                    "x": _count("number", "Candidates tried", zero=False, padding=8),
                    "y": _figure("speedup", _SPEEDUP, padding=12),
                    "tooltip": _tooltip(_POINT),
                },
            },
            {
                "data": {"name": "steps"},
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5},
                "encoding": {
                    "x": _count("number", "Candidates tried", zero=False, padding=8),
                    "y": _figure("speedup", _SPEEDUP),
                    "color": {"field": "sweep", "type": "nominal", "title": "Sweep", "sort": None},
                },
            },
            {
                "data": {"name": "steps"},
                "transform": [{"filter": "datum.improves"}],
                "mark": {"type": "point", "filled": True, "size": 50},
                "encoding": {
                    "x": _count("number", "Candidates tried", zero=False, padding=8),
                    "y": _figure("speedup", _SPEEDUP),
                    "color": {"field": "sweep", "type": "nominal", "sort": None},
                    "tooltip": _tooltip(_POINT),
                },
            },
        ],
    }


def _groups(above: bool) -> Spec:
    """Groups of candidates, such as those with one value of a parameter; fields of ``GroupRow``.

    Names stand beside the bars; long names stand ``above`` them.
    """
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
            *_beside_one("x"),
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
    """Two parameters together; fields of ``CellRow``. The page's script names the axes."""
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
    """Achieved bytes per second of problems without contractions; fields of ``Roof`` and ``Reached``."""
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
    """The number of candidates or combinations by kind; fields of ``Count``."""
    return {
        "height": {"step": 26},
        "data": {"name": "counts"},
        "encoding": {
            "y": {"field": "kind", "type": "nominal", "sort": None, "title": None},
            "x": _count("count", "Number", zero=True, padding=12),
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
