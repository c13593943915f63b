"""The service: judges candidates that others send over HTTP, with the evaluator of ``kgen eval``.

    request ── app (auth, limits) ── asked (checked) ── store (kept) ──> 202
    store ── judge (one thread or more for each device) ── bench (evaluators) ── eval_file ──> answer ── store

The process of the service executes no text of a request: processes of the evaluator do.
"""
