"""The client of language models, against a server on loopback: replies, faults, and where data goes."""

from __future__ import annotations

import pytest
from model_server import KEY, Answer, ModelServer, serving

from kgen.agent.client import MOST_WAIT, TRIES, Client
from kgen.errors import InputError

QUESTION = [{"role": "user", "content": "a question"}]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def client(server: ModelServer, waits: list[float], stream: bool = True) -> Client:
    return Client("m", server.url, stream=stream, timeout=20, sleep=waits.append)


@pytest.mark.parametrize("stream", [True, False])
def test_reply_comes_whole_with_its_tokens_streamed_and_not(stream: bool) -> None:
    text = "".join(f"line {n} of the reply\n" for n in range(400))
    with serving(Answer(text)) as server:
        reply = client(server, [], stream).ask(QUESTION)
    assert (reply.text, reply.cut, reply.prompt_tokens, reply.reply_tokens) == (text, False, 11, 7)
    assert server.asked[0]["messages"] == QUESTION and server.asked[0]["model"] == "m" and server.keys == [f"Bearer {KEY}"]


@pytest.mark.parametrize("stream", [True, False])
def test_reply_at_the_limit_of_tokens_is_cut(stream: bool) -> None:
    with serving(Answer("class ModelNew", finish="length")) as server:
        assert client(server, [], stream).ask(QUESTION).cut


def test_reply_that_repeats_itself_is_ended() -> None:
    with serving(Answer("a beginning\n" + "and again and again\n" * 100_000)) as server:
        reply = client(server, []).ask(QUESTION)
    assert reply.cut and len(reply.text) < 20_000


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "raw",
    ["<html>hello</html>", "{}", "[]", "null", '{"choices": null, "usage": 3}', '{"choices": [{"message": null, "delta": null}]}',
     '{"choices": [{"message": {"content": [1]}}], "usage": {"prompt_tokens": -1, "completion_tokens": 1e99}}'],
)  # fmt: skip
def test_answer_of_another_kind_is_an_empty_reply_or_one_line(raw: str, stream: bool) -> None:
    kind = {"content-type": "text/html" if raw[0] == "<" else "application/json"}
    with serving(Answer(raw=raw, headers=kind)) as server:
        try:
            reply = client(server, [], stream).ask(QUESTION)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert (reply.text, reply.prompt_tokens, reply.reply_tokens) == ("", None, None)


def test_characters_that_no_encoding_has_are_replaced() -> None:
    with serving(Answer("a\ud800b")) as server:
        assert client(server, []).ask(QUESTION).text == "a?b"


@pytest.mark.parametrize(
    "fault",
    [Answer("busy", 429, {"retry-after": "7"}), Answer("broken", 500), Answer("away", 503), Answer("x" * 2000, drops=True)],
    ids=["429", "500", "503", "dropped"],
)
def test_question_is_asked_again_after_a_fault_that_may_pass(fault: Answer) -> None:
    waits: list[float] = []
    with serving(fault, fault, Answer("a reply")) as server:
        assert client(server, waits).ask(QUESTION).text == "a reply"
    assert len(server.asked) == 3 and len(waits) == 2 and all(0 < wait <= MOST_WAIT * 1.25 for wait in waits)
    assert waits == [7.0, 7.0] if fault.status == 429 else waits[1] > waits[0] * 1.5


def test_server_that_stays_away_is_one_line_after_some_tries() -> None:
    waits: list[float] = []
    with serving(Answer("away", 503)) as server, pytest.raises(InputError) as raised:
        client(server, waits).ask(QUESTION)
    assert len(server.asked) == TRIES and len(waits) == TRIES - 1
    assert "does not answer" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(f"wrong key {KEY}", 401), "refuses the key of OPENAI_API_KEY"),
        (Answer("The model `m` does not exist", 404), "has no model 'm'"),
        (Answer("too long", 400), "refuses the question"),
        (Answer("elsewhere", 307, {"location": "http://127.0.0.1:9/v1/chat/completions"}), "refuses the question"),
    ],
)
def test_refusal_of_the_server_is_one_line_without_the_key(answer: Answer, line: str) -> None:
    with serving(answer) as server, pytest.raises(InputError) as raised:
        client(server, []).ask(QUESTION)
    assert line in str(raised.value) and KEY not in str(raised.value) and "\n" not in str(raised.value)
    assert len(server.asked) == 1


def test_key_that_a_server_gives_back_is_not_kept() -> None:
    with serving(Answer(f"your key is {KEY}")) as server:
        assert client(server, []).ask(QUESTION).text == "your key is ***"


@pytest.mark.parametrize(("url", "line"), [(None, "kgen sends data to no other"), ("localhost:8000", "is no address")])
def test_server_has_to_be_named(url: str | None, line: str) -> None:
    with pytest.raises(InputError, match=line):
        Client("m", url)


def test_address_is_shown_without_a_password() -> None:
    assert Client("m", "http://me:secret@127.0.0.1:1/v1?token=2").url == "http://127.0.0.1:1/v1"
