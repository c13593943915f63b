"""A small server on loopback that speaks OpenAI's protocol: it gives scripted replies, streamed and not, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-very-secret-key"


@dataclass(frozen=True)
class Answer:
    """An answer: a text, or a status with a message. ``drops`` ends the connection in the middle of the text."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    finish: str = "stop"
    drops: bool = False
    raw: str = ""  # the whole body of a 200


@dataclass
class ModelServer:
    """The script, and the requests that came: their bodies and headers."""

    answers: list[Answer]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sent: int = 0  # characters of streamed replies

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: Answer) -> Iterator[ModelServer]:
    """A server that gives the answers one after the other, the last one for ever."""
    script = ModelServer([*answers])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            script.asked.append(body)
            script.keys.append(self.headers.get("authorization", ""))
            answer = script.next()
            if answer.status != 200:
                self._send(answer.status, {"error": {"message": answer.text, "type": "error"}}, answer.headers)
            elif answer.raw:
                self._bytes(200, answer.raw.encode(), answer.headers)
            elif body.get("stream"):
                self._stream(answer)
            else:
                choice = {"index": 0, "finish_reason": answer.finish, "message": {"role": "assistant", "content": answer.text}}
                usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
                self._send(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}, {})

        def _send(self, status: int, value: Any, headers: dict[str, str]) -> None:
            self._bytes(status, json.dumps(value).encode(), headers)

        def _bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, text in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: Answer) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            parts = [answer.text[at : at + 100] for at in range(0, len(answer.text), 100)]
            try:
                for part in parts[: len(parts) // 2] if answer.drops else parts:
                    script.sent += len(part)
                    self._event({"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]})
                if not answer.drops:
                    self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
                    self._event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
                    self._chunk(b"data: [DONE]\n\n")
                    self.wfile.write(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):  # the client has read enough
                pass

        def _event(self, value: dict[str, Any]) -> None:
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", **value}
            self._chunk(f"data: {json.dumps(chunk)}\n\n".encode())

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


__all__ = ["KEY", "Answer", "ModelServer", "serving"]
