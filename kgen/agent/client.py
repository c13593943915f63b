"""The client of a server of language models, which speaks OpenAI's protocol.

kgen sends data to the server that the user named, and nowhere else: redirects are not followed. The key stands in no
log and no store.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from kgen.agent import replies
from kgen.candidate import COUNTABLE
from kgen.errors import ExtraError, InputError

URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
TRIES = 6  #: of one question
MOST_WAIT = 60.0  #: s; between two tries
MOST_CHARACTERS = 200_000  #: of one reply
_TIMEOUT = 600.0  #: s; without a byte of a reply
_LOOK = 2_000  #: characters of a streamed reply, between looks for loops


@dataclass(frozen=True)
class Reply:
    """A reply; ``cut`` where it was ended before its end: by the server's limit, by kgen's, or because it repeated
    itself."""

    text: str
    cut: bool
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


class Client:
    """Asks one model of one server. A question is repeated after timeouts, lost connections, and answers 429 and
    5xx."""

    def __init__(
        self, model: str, url: str | None, *, stream: bool = True, timeout: float = _TIMEOUT,
        notice: Callable[[str], None] = lambda text: None, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        try:
            import openai
        except ModuleNotFoundError as error:
            raise ExtraError("kgen agent needs the openai client to ask a model: pip install 'kgen[agent]'") from error
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise InputError(f"name the server with --url or {URL_VARIABLE}: kgen sends data to no other")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InputError(f"--url {shown(url)} is no address: http://HOST:PORT/v1")
        self.model, self.url, self._stream, self._notice, self._sleep = model, shown(url), stream, notice, sleep
        self._key = os.environ.get(KEY_VARIABLE) or ""
        self._openai = openai
        self._address, self._timeout = url, timeout

    def ask(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """The reply to a conversation. Raises :class:`InputError`, one line, where the server refuses it or does not
        answer."""
        openai, problem = self._openai, ""
        for attempt in range(TRIES):
            try:
                return self._asked(messages)
            except openai.AuthenticationError as error:
                raise InputError(f"{self.url} refuses the key of {KEY_VARIABLE}: {self._line(error)}") from None
            except openai.NotFoundError as error:
                raise InputError(
                    f"{self.url} has no model {self.model!r}, or no such path: {self._line(error)}"
                ) from None
            except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as error:
                problem, wait = self._line(error), _wait(error, attempt)
            except openai.APIStatusError as error:
                raise InputError(f"{self.url} refuses the question: {self._line(error)}") from None
            except openai.APIError as error:  # in the middle of a stream
                problem, wait = self._line(error), _wait(error, attempt)
            except Exception as error:
                if not type(error).__module__.startswith(("http", "json")):
                    raise
                problem, wait = (
                    self._line(error),
                    _wait(error, attempt),
                )  # a connection that ended in the middle of a stream
            if attempt + 1 < TRIES:
                self._notice(f"{self.url}: {problem}; asked again in {wait:.0f} s")
                self._sleep(wait)
        raise InputError(f"{self.url} does not answer after {TRIES} tries: {problem}")

    def cleaned(self, text: str) -> str:
        """A text without the key, and without characters that no encoding has."""
        text = text.encode("utf-8", "replace").decode()
        return text.replace(self._key, "***") if self._key else text

    def _asked(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        openai = self._openai
        with openai.OpenAI(
            base_url=self._address, api_key=self._key or "none", max_retries=0, timeout=self._timeout,
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        ) as client:  # fmt: skip
            return self._replied(client.chat.completions.create, messages)

    def _replied(self, create: Any, messages: Sequence[Mapping[str, str]]) -> Reply:
        if not self._stream:
            found = create(model=self.model, messages=[*messages])
            [choice] = _choices(found) or [None]
            text = _text(getattr(choice, "message", None))
            cut = getattr(choice, "finish_reason", None) == "length" or len(text) > MOST_CHARACTERS
            return Reply(self.cleaned(text[:MOST_CHARACTERS]), cut or replies.loops(text), *_tokens(found))
        with create(
            model=self.model, messages=[*messages], stream=True, stream_options={"include_usage": True}
        ) as chunks:
            return self._streamed(chunks)

    def _streamed(self, chunks: Iterable[Any]) -> Reply:
        parts: list[str] = []
        length, looked, cut, counted = 0, 0, False, None
        for chunk in chunks:
            counted = chunk if getattr(chunk, "usage", None) else counted
            for choice in _choices(chunk):
                parts.append(_text(getattr(choice, "delta", None)))
                length += len(parts[-1])
                cut = cut or getattr(choice, "finish_reason", None) == "length"
            if length - looked >= _LOOK:
                looked = length
                if length > MOST_CHARACTERS or replies.loops("".join(parts)):
                    cut = True
                    break
        return Reply(self.cleaned("".join(parts)[:MOST_CHARACTERS]), cut, *_tokens(counted))

    def _line(self, error: Exception) -> str:
        return self.cleaned(" ".join(str(error).split())[:300])


def shown(url: str) -> str:
    """An address without a name and a password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _choices(answer: Any) -> list[Any]:
    """The first choice of an answer, if it has one; servers give answers of any kind."""
    found = getattr(answer, "choices", None)
    return found[:1] if isinstance(found, list) else []


def _text(message: Any) -> str:
    found = getattr(message, "content", None)
    return found if isinstance(found, str) else ""


def _tokens(answer: Any) -> Iterator[int | None]:
    """The tokens of the prompt and of the reply, where the server has counted them."""
    for name in ("prompt_tokens", "completion_tokens"):
        found = getattr(getattr(answer, "usage", None), name, None)
        yield found if isinstance(found, int) and 0 <= found <= COUNTABLE else None


def _wait(error: Any, attempt: int) -> float:
    """Seconds until the next try: those that the server asks for, else twice as many each time, and somewhat more."""
    given = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    try:
        return min(max(float(given), 0.0), MOST_WAIT)
    except ValueError:
        return min(2.0**attempt, MOST_WAIT) * random.uniform(1.0, 1.25)
