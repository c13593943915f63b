"""A language model as a proposer: one question and one reply a round."""

from __future__ import annotations

from typing import Sequence

from kgen.agent import prompt, replies
from kgen.agent.client import Client
from kgen.agent.proposer import Context, Proposals, Settings, Verdict
from kgen.errors import InputError


class LanguageModel:
    """Asks a model about the present state. Each question stands for itself, so that a continued run needs no
    conversation."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def of(cls, settings: Settings) -> LanguageModel:
        if not settings.model:
            raise InputError("the proposer model needs --model NAME")
        return cls(Client(settings.model, settings.url, stream=settings.stream, notice=settings.notice))

    def propose(self, context: Context) -> Proposals:
        system, question = prompt.messages(context)
        asked = [
            {"role": "system", "content": self._client.cleaned(system)},
            {"role": "user", "content": self._client.cleaned(question)},
        ]
        reply = self._client.ask(asked)
        return Proposals(
            replies.read(reply.text, cut=reply.cut), prompt="\n\n".join(m["content"] for m in asked), reply=reply.text,
            model=self._client.model, prompt_tokens=reply.prompt_tokens, reply_tokens=reply.reply_tokens,
        )  # fmt: skip

    def tell(self, verdicts: Sequence[Verdict]) -> None:
        """Nothing: the next question has all verdicts."""
