"""The description of the service: an OpenAPI document, and a page made of the same table."""

from __future__ import annotations

import html
from typing import Any

from kgen.protocol import __version__
from kgen.serve.asked import FIELDS

_EVALUATION = {
    "type": "object",
    "required": ["candidate"],
    "additionalProperties": False,
    "properties": {name: {**field.schema, "description": field.about} for name, field in FIELDS.items()},
}
_BATCH = {
    "type": "object",
    "properties": {"evaluations": {"type": "array", "items": _EVALUATION}},
    "required": ["evaluations"],
}
_TASK = {
    "type": "object",
    "required": ["task_id", "reference_code", "kernel_code"],
    "properties": {
        name: {"type": "string"}
        for name in (
            "task_id",
            "reference_code",
            "kernel_code",
            "backend",
            "entry_point",
            "priority",
            "reference_backend",
        )
    },
}
_TASKS = {"type": "object", "properties": {"batch_id": {"type": "string"}, "tasks": {"type": "array", "items": _TASK}}}

#: Method, path, one line, and the schema of the body.
OPERATIONS: tuple[tuple[str, str, str, dict[str, Any] | None], ...] = (
    (
        "post",
        "/evaluations",
        "Have a candidate judged. 202: it is accepted, and kept. 200: it has its answer already.",
        _EVALUATION,
    ),
    ("post", "/evaluations/batch", "Have several candidates judged: all are accepted, or none.", _BATCH),
    ("get", "/evaluations/{id}", "The state of an evaluation, and its answer: the fields of `kgen eval --json`.", None),
    (
        "get",
        "/evaluations/{id}/events",
        "The steps of an evaluation as server-sent events; the last one is its answer.",
        None,
    ),
    ("get", "/evaluations/{id}/log", "The whole log of an evaluation.", None),
    ("get", "/evaluations/{id}/source", "The text of the candidate.", None),
    ("get", "/problems", "The problems that requests may name, with the constants that they may override.", None),
    ("get", "/best", "The best of kgen's own candidates for each problem, or for ?problem=NAME.", None),
    ("get", "/health", "Whether the service works, and how much it has to do. Needs no token.", None),
    ("get", "/metrics", "Counters in the text format of Prometheus.", None),
    ("post", "/evaluate", "KernelGYM: have a task judged; answers with its result.", _TASK),
    ("post", "/evaluate/batch", "KernelGYM: have tasks judged; answers with all results.", _TASKS),
    ("get", "/status/{id}", "KernelGYM: the state of a task.", None),
    ("get", "/results/{id}", "KernelGYM: the result of a task.", None),
)

#: The meanings of the statuses of errors; each has a body ``{"error": LINE}``.
ERRORS = {
    "400": "The request is not HTTP or not JSON.",
    "401": "The token is missing or wrong.",
    "403": "The service takes no texts of problems.",
    "404": "This client has no such evaluation.",
    "408": "The request did not arrive in time.",
    "409": "The id stands for another evaluation.",
    "413": "The request is too large.",
    "415": "The content type is not application/json.",
    "421": "Without tokens, the service is for this machine alone.",
    "422": "A field is wrong, or the problem cannot be read: the line says where.",
    "429": "The queue is full: come again after Retry-After seconds.",
    "503": "The service ends, or its database does not answer.",
}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    found: dict[str, Any] = {}
    for method, path, about, schema in OPERATIONS:
        operation: dict[str, Any] = {"summary": about, "responses": {"200": {"description": "done"}}}
        operation["responses"] |= {status: {"description": line} for status, line in ERRORS.items()}
        if schema is not None:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if "{id}" in path:
            operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        found.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "kgen serve", "version": __version__},
        "paths": found,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def page() -> str:
    """One page about all operations, without scripts."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(about)}</td></tr>"
        for method, path, about, _ in OPERATIONS
    )
    fields = "".join(
        f"<tr><td><code>{name}</code></td><td>{html.escape(field.about)}</td></tr>" for name, field in FIELDS.items()
    )
    errors = "".join(f"<tr><td>{status}</td><td>{html.escape(line)}</td></tr>" for status, line in ERRORS.items())
    style = (
        "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td{padding:.2em .8em .2em "
        "0;vertical-align:top}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>kgen serve</title><style>{style}</style><h1>kgen '
        "serve</h1>"
        f'<p>As a document: <a href="openapi.json">openapi.json</a>.</p><h2>Operations</h2><table>{rows}</table>'
        f"<h2>Fields of an evaluation</h2><table>{fields}</table><h2>Errors</h2><table>{errors}</table></html>"
    )
