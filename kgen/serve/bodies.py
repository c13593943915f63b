"""The bodies of requests: their size, their time and their JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from kgen.serve.asked import RequestError

SECONDS = 10.0  #: s; in which a body has to arrive


async def read_json(request: Request, most: int) -> Any:
    """The JSON value of a body of at most ``most`` bytes. Raises :class:`RequestError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page of another site cannot send this type without asking first.
        raise RequestError(415, "the content type has to be application/json")
    text = await _read(request, most)
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {str(error)[:200] or 'it is nested too deeply'}") from error


async def _read(request: Request, most: int) -> bytes:
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise RequestError(413, f"the body has more than {most} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise RequestError(413, f"the body has more than {most} bytes")
    except TimeoutError as error:
        raise RequestError(408, f"the body did not arrive within {SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise RequestError(400, "the client left") from error
    return bytes(body)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
