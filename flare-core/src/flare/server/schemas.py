"""Shapes of responses, for the OpenAPI document. Responses are written without them: see `formats`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Shape):
    """What went wrong. `param` names the field at fault."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str


class Error(Shape):
    """OpenAI's shape of an error."""

    error: ErrorDetail


class CachedPrefix(Shape):
    """One checkpoint."""

    number: int
    parent: int | None
    tokens: int
    pages: int
    pins: int
    accessed: int
    side: bool


class CachedPrefixes(Shape):
    """Checkpoints, the most recently used first; `total` counts those left out too."""

    type: Literal["cache_report"]
    total: int
    checkpoints: list[CachedPrefix]


class StepTiming(Shape):
    """One step of the engine, in microseconds."""

    number: int
    program: str
    kind: str
    requests: int
    plan_us: float
    pack_us: float
    submit_us: float
    wait_us: float
    complete_us: float
    deliver_us: float
    device_us: float
    gap_us: float | None


class StepTimings(Shape):
    """The steps that the engine remembers, the oldest first; `newest` is the number of the last one."""

    type: Literal["timeline_report"]
    newest: int
    steps: list[StepTiming]


class CachedTokens(Shape):
    """Details of `prompt_tokens`."""

    cached_tokens: int


class ReasoningTokens(Shape):
    """Details of `completion_tokens`."""

    reasoning_tokens: int


class Usage(Shape):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class ChatToken(Shape):
    """A token with its log-probability and its bytes."""

    token: str
    logprob: float
    bytes: list[int]


class ScoredChatToken(ChatToken):
    """A drawn token with its alternatives."""

    top_logprobs: list[ChatToken]


class ChatLogprobs(Shape):
    """Log-probabilities of a chat choice."""

    content: list[ScoredChatToken]
    refusal: None


class CalledFunction(Shape):
    """Name, and arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(Shape):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Shape):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(Shape):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    broken_tool_calls: list[str] | None = None


class ChatCompletion(Shape):
    """A whole chat response."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class CompletionLogprobs(Shape):
    """Log-probabilities of a text choice, in four parallel lists."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Shape):
    """One continuation."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Shape):
    """A whole text completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class ChatFacts(Shape):
    """What a chat may have: images, tools, reasoning apart from the answer, levels of effort, reasoning that
    can be switched on and off."""

    images: bool
    tools: bool
    reasoning: bool
    efforts: list[str]
    thinking_switch: bool


class SamplingFact(Shape):
    """A parameter's default, and the range that requests may move in."""

    default: float
    low: float
    high: float


class Model(Shape):
    """The served model; `max_model_len` is its context in tokens, null while it loads; `chat` is null for one
    that takes no chats."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int | None
    chat: ChatFacts | None
    sampling: dict[str, SamplingFact]


class ModelList(Shape):
    """All served models."""

    object: Literal["list"]
    data: list[Model]


class Health(BaseModel):
    """`reason` says why the server is unavailable."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None


class Tokenized(Shape):
    """Token ids; `token_strs` are their vocabulary entries, when asked for."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Shape):
    """The text of token ids."""

    prompt: str


class CoreVersion(Shape):
    """Identity of the served core file."""

    digest: str
    format: int


class Version(Shape):
    """Version of the server, and the core it serves."""

    version: str
    core: CoreVersion | None


class Root(Shape):
    """Who answers here."""

    server: Literal["flare"]
    version: str
