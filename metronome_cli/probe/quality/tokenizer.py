"""Text to token numbers and back, and the form of a conversation: the model's own chat template if it has one.

A conversation is fed piece by piece, so the template is rendered for a growing list of messages and only what
is new is taken. A template that rewrites what came before cannot be fed that way; then, as for a model without
a template, turns are plain lines, `Question: ...` and `Answer: ...`, and an answer ends with its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from metronome_cli.core.errors import UsageError

if TYPE_CHECKING:
    from metronome_cli.models.weights.model_files import ModelFiles

_PLAIN_TURN, _PLAIN_END = "Question: {}\nAnswer:", "\n"


class Tokenizer(Protocol):
    """A tokenizer as the probe needs it. `ends`: tokens that end an answer."""

    ends: frozenset[int]

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def turn(self, question: str, *, first: bool) -> list[int]:
        """A question, up to where the answer begins. `first`: with what opens a conversation."""

    def around(self, question: str, *, first: bool) -> tuple[list[int], list[int]]:
        """What stands before and after what is heard; `question` is asked about it in text, if at all."""

    def answer(self, text: str) -> list[int]:
        """An answer, with the token that ends it."""

    def between(self) -> list[int]:
        """What stands between an answer's end and the next question."""


class ChatTemplateTokenizer:
    """Implements `Tokens` on a `transformers` tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._pieces = _pieces(tokenizer)
        if self._pieces is None:
            self.ends = frozenset({*_ends(tokenizer), *self.encode(_PLAIN_END)})
        else:
            self.ends = frozenset(_ends(tokenizer))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def turn(self, question: str, *, first: bool) -> list[int]:
        """See `Tokens.turn`."""
        if self._pieces is None:
            return self.encode(_PLAIN_TURN.format(question))
        opening, before, after, _, _ = self._pieces
        return self.encode((opening if first else "") + before + question + after)

    def around(self, question: str, *, first: bool) -> tuple[list[int], list[int]]:
        """See `Tokens.around`."""
        if self._pieces is None:
            before, after = _PLAIN_TURN.split("{}")
            return self.encode(before), self.encode(question + after)
        opening, before, after, _, _ = self._pieces
        return self.encode((opening if first else "") + before), self.encode(question + after)

    def answer(self, text: str) -> list[int]:
        """See `Tokens.answer`."""
        if self._pieces is None:
            return self.encode(f" {text}{_PLAIN_END}")
        return self.encode(text + self._pieces[3])

    def between(self) -> list[int]:
        """See `Tokens.between`."""
        return [] if self._pieces is None else self.encode(self._pieces[4])


def _ends(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


_Q, _A = "\x51uestion-one", "\x41nswer-one"


def _pieces(tokenizer: Any) -> tuple[str, str, str, str, str] | None:
    """Opening of a conversation, text before and after a question, an answer's end, and what follows it.

    None if there is no template, or if it does not leave earlier messages as they were.
    """
    end = tokenizer.eos_token
    if not getattr(tokenizer, "chat_template", None) or not end:
        return None
    ask, reply = {"role": "user", "content": _Q}, {"role": "assistant", "content": _A}
    first, second = _render(tokenizer, [ask]), _render(tokenizer, [ask, reply, ask])
    head, _, after = first.partition(_Q)
    if not second.startswith(first) or not second[len(first) :].startswith(_A):
        return None
    rest, _, last = second[len(first) + len(_A) :].partition(_Q)
    if last != after or not rest.startswith(end):
        return None
    follow = rest[len(end) :]  # the break after an answer, and what stands before a question
    common = len(_shared_end(head, follow))
    return head[: len(head) - common], head[len(head) - common :], after, end, follow[: len(follow) - common]


def _render(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def _shared_end(one: str, other: str) -> str:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return one[len(one) - count :]


def read_tokens(found: ModelFiles) -> Tokenizer:
    """The tokenizer beside a checkpoint, or inside a GGUF file. Raises UsageError if there is none."""
    from transformers import AutoTokenizer

    more = {"gguf_file": found.gguf} if found.gguf else {}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(
            found.folder, local_files_only=True, trust_remote_code=False, **more
        )
    except (ValueError, OSError, KeyError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"{found.path}: no tokenizer that transformers reads: {first}",
            hint="put the checkpoint's tokenizer.json beside its weights",
        ) from error
    return ChatTemplateTokenizer(tokenizer)
