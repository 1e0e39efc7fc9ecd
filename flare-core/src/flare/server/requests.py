"""Bodies of the generation endpoints. Shapes follow the OpenAI API; sampling extras follow vLLM.

Fields that are not declared here are kept: `flare.server.unserved` refuses the ones that would change the
answer, the rest is ignored with a log line.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

MOST_CHOICES = 128
MOST_STOPS = 16
MOST_BIASES = 1024  # far above what a core holds, which is checked later

Count = Annotated[int, Field(ge=0)]
Choices = Annotated[int, Field(ge=1, le=MOST_CHOICES)]
Alternatives = Annotated[int, Field(ge=0, le=20)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
# Checked by `flare.grammar`: objects, and for vLLM's fields their text.
Schema = Annotated[Any, WithJsonSchema({"type": "object"})]

_NULL = {"type": "null"}
_STOP_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MOST_STOPS},
        _NULL,
    ]
}
_TOKENS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        _TOKENS_SCHEMA,
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        {"type": "array", "items": _TOKENS_SCHEMA, "minItems": 1},
    ]
}
_PART_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            "required": ["type", "text"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "image_url"},
                "image_url": {
                    "type": "object",
                    "properties": {"url": {"type": "string", "pattern": "^(data:image/|https?://)"}},
                    "required": ["url"],
                },
            },
            "required": ["type", "image_url"],
        },
    ]
}
_CALL_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": ["string", "null"]},
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "arguments": {"type": ["string", "object", "null"]},
            },
            "required": ["name"],
        },
    },
    "required": ["function"],
}
_TOOLS_SCHEMA = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "minLength": 1},
                            "description": {"type": ["string", "null"]},
                            "parameters": {"type": ["object", "null"]},
                        },
                        "required": ["name"],
                    },
                },
                "required": ["type", "function"],
            },
        },
        _NULL,
    ]
}
_MESSAGES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART_SCHEMA}]},
            "name": {"type": ["string", "null"]},
            "tool_calls": {"anyOf": [{"type": "array", "items": _CALL_SCHEMA}, _NULL]},
            "tool_call_id": {"type": ["string", "null"]},
            "reasoning_content": {"type": ["string", "null"]},
            "reasoning": {"type": ["string", "null"]},
        },
        "required": ["role", "content"],
    },
}
_BIAS_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        _NULL,
    ]
}
_TOOL_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
            "required": ["type", "function"],
        },
        _NULL,
    ]
}

# Checked by `flare.frontend.normalize_messages`, which names the part at fault.
Messages = Annotated[list[Any], WithJsonSchema(_MESSAGES_SCHEMA)]
# Checked by `flare.frontend.tools.normalize_tools`, likewise.
Tools = Annotated[list[Any] | None, WithJsonSchema(_TOOLS_SCHEMA)]
# Checked by `flare.server.tools.read_tools`.
ToolChoice = Annotated[Any, WithJsonSchema(_TOOL_CHOICE_SCHEMA)]


class StreamOptions(BaseModel):
    """`continuous_usage_stats` puts the usage so far into every chunk, as in vLLM."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchemaFormat(BaseModel):
    """`strict` changes nothing: a schema is always enforced, all of it."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: str | None = None
    description: str | None = None
    schema_: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """`type`: `text`, `json_object` or `json_schema`."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(BaseModel):
    """vLLM's `structured_outputs`: one of `json`, `json_object`, `regex`, `choice` and `grammar`."""

    model_config = ConfigDict(strict=True, extra="allow")

    json_: Schema | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: Texts | None = None
    grammar: str | None = None
    disable_any_whitespace: bool | None = None
    whitespace_pattern: str | None = None


class GenerationRequest(BaseModel):
    """What both endpoints share. Every field may be null, which is the same as absent."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Choices | None = None
    max_tokens: Count | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop: Annotated[Texts | None, WithJsonSchema(_STOP_SCHEMA)] = None
    stop_token_ids: TokenIds | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: Annotated[int, Field(lt=1 << 31)] | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Annotated[dict[str, float] | None, WithJsonSchema(_BIAS_SCHEMA)] = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Texts | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_list(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _bounded_bias(cls, bias: Any) -> Any:
        if isinstance(bias, dict) and len(bias) > MOST_BIASES:
            raise ValueError(f"holds {len(bias)} tokens, more than any model takes")
        return bias

    @field_validator("stop")
    @classmethod
    def _stop_strings(cls, stop: list[str] | None) -> list[str] | None:
        if stop is not None and len(stop) > MOST_STOPS:
            raise ValueError(f"at most {MOST_STOPS} stop strings are taken, got {len(stop)}")
        if stop is not None and not all(stop):
            raise ValueError("a stop string must not be empty")
        return stop


class ChatRequest(GenerationRequest):
    """`POST /v1/chat/completions`. Messages: see `flare.frontend.normalize_messages`."""

    messages: Messages
    tools: Tools = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    prompt_cache_key: Annotated[str, Field(max_length=1024)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None


class CompletionRequest(GenerationRequest):
    """`POST /v1/completions`. `prompt`: a string, a list of token ids, or a list of either."""

    prompt: Annotated[Any, WithJsonSchema(_PROMPT_SCHEMA)]
    echo: bool | None = None
    logprobs: Alternatives | None = None


class TokenizeRequest(BaseModel):
    """`POST /tokenize`: a prompt, or messages as a chat request would render them.

    `add_special_tokens` puts the model's beginning-of-sequence token in front: on by default for a prompt,
    off for messages, whose template writes its own. `tools` and `chat_template_kwargs` are for the template.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(BaseModel):
    """`POST /detokenize`."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    tokens: TokenIds
