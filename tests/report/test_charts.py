"""The charts are right Vega-Lite, and name fields that their rows have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import vl_convert

from kgen.views.report import ceilings, rows
from kgen.views.report.charts import CHARTS, CONFIG

#: The rows that each set of data holds.
ROWS: dict[str, type] = {
    "points": rows.Point,
    "limits": rows.Limit,
    "beyond": rows.Beyond,
    "tried": rows.Point,
    "steps": rows.Step,
    "groups": rows.GroupRow,
    "cells": rows.CellRow,
    "roofs": ceilings.Roof,
    "reached": ceilings.Reached,
    "counts": rows.Count,
}


def layers(spec: dict[str, Any], data: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each layer with the name of its data."""
    data = spec.get("data", {}).get("name", data)
    for layer in spec.get("layer", ()):
        yield from layers({"encoding": {}, **layer}, None if "values" in layer.get("data", {}) else data)
    if data:
        yield data, spec.get("encoding", {})


def fields_named(encoding: Any) -> Iterator[str]:
    if isinstance(encoding, dict):
        if isinstance(encoding.get("field"), str):
            yield encoding["field"]
        for value in encoding.values():
            yield from fields_named(value)
    elif isinstance(encoding, list):
        for value in encoding:
            yield from fields_named(value)


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_right_vega_lite(name: str) -> None:
    datasets = {data: [] for data, _ in layers(CHARTS[name])}
    compiled = vl_convert.vegalite_to_vega({**CHARTS[name], "datasets": datasets, "config": CONFIG})
    assert compiled["marks"]


@pytest.mark.parametrize("name", CHARTS)
def test_fields_of_a_chart_are_those_of_its_rows(name: str) -> None:
    for data, encoding in layers(CHARTS[name]):
        known = {field.name for row in (ROWS[data], rows.Named) for field in fields(row)}
        assert set(fields_named(encoding)) <= known, data


@pytest.mark.parametrize("name", CHARTS)
def test_axes_of_numbers_have_titles(name: str) -> None:
    for _, encoding in layers(CHARTS[name]):
        for channel in ("x", "y"):
            if encoding.get(channel, {}).get("type") == "quantitative":
                assert encoding[channel]["title"], encoding


def test_charts_load_nothing() -> None:
    assert '"url"' not in json.dumps(CHARTS)
