"""Access: tokens name the clients. Without tokens, only this machine may ask."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from pathlib import Path
from typing import Mapping
from urllib.parse import urlsplit

from kgen.errors import InputError
from kgen.serve.asked import RequestError

LEAST_CHARACTERS = 16  #: characters of a token


def read_tokens(file: Path | None, one: str | None) -> frozenset[str]:
    """The hashes of the tokens in ``file``, a line for each client, and of ``one``. Raises :class:`InputError`."""
    tokens = [one] if one else []
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: the tokens cannot be read: {error}") from error
        tokens += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not tokens:
            raise InputError(f"{file}: has no token: write one into each line")
    for token in tokens:
        if len(token) < LEAST_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"a token needs {LEAST_CHARACTERS} or more printable ASCII characters without spaces")
    return frozenset(map(hash_of, tokens))


def hash_of(token: str) -> str:
    """The SHA-256 of a token: an owner's name in the database."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address, or the name ``localhost``, is this machine's loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def owner(headers: Mapping[str, str], tokens: frozenset[str]) -> str:
    """The owner that a request's headers prove; empty where no tokens are asked for. Raises :class:`RequestError`."""
    if not tokens:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if not is_loopback(host):  # another site may let its host name lead to this machine
            raise RequestError(421, "the service is for this machine alone: ask 127.0.0.1 or localhost")
        return ""
    kind, _, token = headers.get("authorization", "").partition(" ")
    given = hash_of(token.strip()) if kind.lower() == "bearer" else ""
    equal = [secrets.compare_digest(given, known) for known in tokens]  # all tokens: the time reveals nothing
    if not any(equal):
        raise RequestError(401, "a token is needed: Authorization: Bearer TOKEN")
    return given
