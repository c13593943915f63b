"""The report: what the database knows of some problems, as one page that opens offline.

    database queries -> Section (sections.py) -> rows of its charts (rows.py) ──┐
                     plans with their parameters (effects.py) ───────────────┼── page.html (page.py)
                     the charts themselves, without data (charts.py) ────────┘

The charts are Vega-Lite: a chart is a value of JSON, checked by a test without any browser, and drawn as SVG whose
colours are variables of the style sheet, so that light, dark and print need no second drawing.
"""
