"""How prompts are divided into messages, and how they go on."""

from __future__ import annotations

import itertools

from conversations import Conversation

from flare.frontend import Prompts

MORE = [
    {"role": "assistant", "content": "yes", "reasoning_content": "so"},
    {"role": "user", "content": "and now?"},
]


def pieces(prompts: Prompts, conversation: Conversation) -> list[str]:
    """The texts between the ends of messages; the last is the beginning of the answer."""
    prompt = prompts.from_messages(conversation.messages, tools=conversation.tools)
    places = [0, *prompt.endpoints, len(prompt.tokens)]
    return [
        prompts.tokenizer.decode(prompt.tokens[start:end], skip_special=False)
        for start, end in itertools.pairwise(places)
    ]


def check_goes_on(prompts: Prompts, conversation: Conversation) -> None:
    """What a checkpoint at the end of the last message has seen must be what the next request begins with."""
    more = [*conversation.messages, *MORE]
    first = prompts.from_messages(conversation.messages, tools=conversation.tools)
    second = prompts.from_messages(more, tools=conversation.tools)
    end = first.endpoints[-1]
    assert second.tokens[:end] == first.tokens[:end]
    assert end in second.endpoints


def check_answer_goes_on(prompts: Prompts, written: str, **answer: str) -> None:
    """A prompt with an answer sent back is what the model saw: the prompt before, and what it wrote."""
    question = {"role": "user", "content": "Is it?"}
    first = prompts.from_messages([question])
    second = prompts.from_messages([question, {"role": "assistant", **answer}, MORE[-1]])
    seen = [*first.tokens, *prompts.tokenizer.encode(written)]
    assert list(second.tokens[: len(seen)]) == seen
