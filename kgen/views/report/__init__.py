"""The report: results of problems as one page that opens offline.

    database queries -> Section (sections.py) -> rows of its charts (rows.py) ──┐
                     plans with their parameters (effects.py) ───────────────┼── page.html (page.py)
                     the charts themselves, without data (charts.py) ────────┘

The charts are Vega-Lite: a chart is a value of JSON, so that a test checks it without a browser. It is drawn as SVG
with colours from the style sheet, so that light, dark and print share one drawing.
"""
