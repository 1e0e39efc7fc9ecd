"""The list of features. An example asks for its feature and for as little else as can be."""

from __future__ import annotations

from typing import Any

from flare.server.support.answer import BYPASSED, REFUSED, SERVED, Feature, Protocol

CHAT, COMPLETIONS = Protocol.CHAT, Protocol.COMPLETIONS
RESPONSES, MESSAGES = Protocol.RESPONSES, Protocol.MESSAGES

_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
_UNIQUE: dict[str, Any] = {"type": "array", "uniqueItems": True}
_FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
_FLAT: dict[str, Any] = {"type": "function", "name": "f", "parameters": _SCHEMA}
_TOOL: dict[str, Any] = {"name": "f", "input_schema": _SCHEMA}
_USER: dict[str, Any] = {"role": "user", "content": "Hi"}
_NOTE: dict[str, Any] = {"role": "system", "content": "Be short."}
_CALLED: list[Any] = [
    _USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "done"},
]
_ITEMS: list[Any] = [
    _USER,
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "done"},
]
_BLOCKS: list[Any] = [
    _USER,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]},
]
_THOUGHT: dict[str, Any] = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}


def _content(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


FEATURES = (
    Feature(
        "streaming",
        {protocol: SERVED(stream=True) for protocol in Protocol},
    ),
    Feature(
        "usage in a stream",
        {
            CHAT: SERVED(stream=True, stream_options={"include_usage": True}),
            COMPLETIONS: SERVED(stream=True, stream_options={"include_usage": True}),
            RESPONSES: SERVED(stream=True),
            MESSAGES: SERVED(stream=True),
        },
    ),
    Feature(
        "system messages between the others",
        {
            CHAT: SERVED(messages=[_USER, _NOTE, _USER]),
            RESPONSES: SERVED(input=[_USER, _NOTE, _USER]),
            MESSAGES: SERVED(messages=[_USER, _NOTE, _USER]),
        },
        "where the template takes one in front only, later ones are the user's, in their place",
    ),
    Feature(
        "tools: functions",
        {CHAT: SERVED(tools=[_FUNCTION]), RESPONSES: SERVED(tools=[_FLAT]), MESSAGES: SERVED(tools=[_TOOL])},
    ),
    Feature(
        "tools: free-form",
        {
            CHAT: REFUSED(tools=[{"type": "custom", "custom": {"name": "f"}}]),
            RESPONSES: SERVED(tools=[{"type": "custom", "name": "f"}]),
        },
    ),
    Feature(
        "tools: namespaces",
        {RESPONSES: SERVED(tools=[{"type": "namespace", "name": "n", "tools": [_FLAT]}])},
    ),
    Feature(
        "tools of the service's own",
        {
            CHAT: REFUSED(web_search_options={"user_location": None}),
            RESPONSES: BYPASSED("tools of type web_search", tools=[{"type": "web_search"}]),
            MESSAGES: BYPASSED(
                "tools of type web_search_20250305",
                tools=[{"type": "web_search_20250305", "name": "web_search"}],
            ),
        },
        "they are left out of the prompt",
    ),
    Feature(
        "calls and results in the history",
        {CHAT: SERVED(messages=_CALLED), RESPONSES: SERVED(input=_ITEMS), MESSAGES: SERVED(messages=_BLOCKS)},
    ),
    Feature(
        "tool choice: none",
        {
            CHAT: SERVED(tools=[_FUNCTION], tool_choice="none"),
            RESPONSES: SERVED(tools=[_FLAT], tool_choice="none"),
            MESSAGES: SERVED(tools=[_TOOL], tool_choice={"type": "none"}),
        },
    ),
    Feature(
        "one call at most",
        {
            CHAT: SERVED(tools=[_FUNCTION], parallel_tool_calls=False),
            RESPONSES: SERVED(tools=[_FLAT], parallel_tool_calls=False),
            MESSAGES: SERVED(tools=[_TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
        },
    ),
    Feature(
        "strict function schemas",
        {
            CHAT: BYPASSED(
                "strict of tools",
                tools=[{"type": "function", "function": {**_FUNCTION["function"], "strict": True}}],
            ),
            RESPONSES: BYPASSED("strict of tools", tools=[{**_FLAT, "strict": True}]),
            MESSAGES: BYPASSED("strict of tools", tools=[{**_TOOL, "strict": True}]),
        },
        "arguments are what the model writes; they are always JSON",
    ),
    Feature("the old form of tools", {CHAT: REFUSED(functions=[_FUNCTION["function"]])}),
    Feature(
        "reasoning in the history",
        {
            CHAT: SERVED(messages=[_USER, _THOUGHT, _USER]),
            RESPONSES: SERVED(
                input=[
                    _USER,
                    {
                        "type": "reasoning",
                        "summary": [],
                        "content": [{"type": "reasoning_text", "text": "Hm."}],
                    },
                    {"role": "assistant", "content": "Yes."},
                    _USER,
                ]
            ),
            MESSAGES: SERVED(
                messages=[
                    _USER,
                    {
                        "role": "assistant",
                        "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}],
                    },
                    _USER,
                ]
            ),
        },
    ),
    Feature(
        "reasoning that only another service can read",
        {
            RESPONSES: BYPASSED(
                "input of type reasoning",
                input=[_USER, {"type": "reasoning", "summary": [], "encrypted_content": "x"}, _USER],
            ),
        },
    ),
    Feature(
        "reasoning on and off",
        {
            CHAT: SERVED(chat_template_kwargs={"enable_thinking": False}),
            RESPONSES: SERVED(reasoning={"effort": "none"}),
            MESSAGES: SERVED(thinking={"type": "disabled"}),
        },
        "`enable_thinking` of the template",
    ),
    Feature(
        "effort of reasoning",
        {
            CHAT: SERVED(reasoning_effort="low"),
            RESPONSES: SERVED(reasoning={"effort": "low"}),
            MESSAGES: SERVED(output_config={"effort": "low"}),
        },
        "`reasoning_effort` of the template",
    ),
    Feature(
        "answers of a JSON schema",
        {
            CHAT: SERVED(
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}
            ),
            COMPLETIONS: SERVED(structured_outputs={"json": _SCHEMA}),
            RESPONSES: SERVED(text={"format": {"type": "json_schema", "name": "x", "schema": _SCHEMA}}),
            MESSAGES: SERVED(output_config={"format": {"type": "json_schema", "schema": _SCHEMA}}),
        },
    ),
    Feature(
        "schemas with a keyword that is not enforced",
        {
            CHAT: REFUSED(
                "invalid_grammar",
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": _UNIQUE}},
            ),
            RESPONSES: REFUSED(
                "invalid_grammar", text={"format": {"type": "json_schema", "name": "x", "schema": _UNIQUE}}
            ),
            MESSAGES: REFUSED(
                "invalid_grammar", output_config={"format": {"type": "json_schema", "schema": _UNIQUE}}
            ),
        },
        "the message names it",
    ),
    Feature(
        "answers of a regular expression, choice or grammar",
        {
            CHAT: SERVED(structured_outputs={"regex": "a+"}),
            COMPLETIONS: SERVED(structured_outputs={"choice": ["a", "b"]}),
        },
    ),
    Feature(
        "a constrained answer beside tools",
        {
            CHAT: SERVED(tools=[_FUNCTION], response_format={"type": "json_object"}),
            RESPONSES: SERVED(
                tools=[_FLAT], text={"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}}
            ),
            MESSAGES: SERVED(
                tools=[_TOOL], output_config={"format": {"type": "json_schema", "schema": _SCHEMA}}
            ),
        },
        note="an output is an answer of the schema, or calls",
    ),
    Feature(
        "log-probabilities",
        {
            CHAT: SERVED(logprobs=True, top_logprobs=2),
            COMPLETIONS: SERVED(logprobs=2),
            RESPONSES: REFUSED(include=["message.output_text.logprobs"]),
        },
    ),
    Feature("several choices", {CHAT: SERVED(n=2), COMPLETIONS: SERVED(n=2)}),
    Feature(
        "stop strings",
        {
            CHAT: SERVED(stop=["x"]),
            COMPLETIONS: SERVED(stop=["x"]),
            MESSAGES: SERVED(stop_sequences=["x"]),
        },
    ),
    Feature(
        "temperature 0",
        {protocol: REFUSED("invalid_request", temperature=0) for protocol in Protocol},
        "with `--zero-temperature=clamp` it is the lowest temperature instead",
    ),
    Feature(
        "penalties of presence and frequency",
        {
            protocol: SERVED(presence_penalty=0.5, frequency_penalty=0.5)
            for protocol in (CHAT, COMPLETIONS, RESPONSES)
        },
    ),
    Feature("seed", {CHAT: SERVED(seed=1), COMPLETIONS: SERVED(seed=1)}),
    Feature("biased tokens", {CHAT: SERVED(logit_bias={"5": 1}), COMPLETIONS: SERVED(logit_bias={"5": 1})}),
    Feature(
        "stored responses",
        {
            CHAT: BYPASSED("store", store=True),
            RESPONSES: BYPASSED("store", store=True),
        },
        "nothing is stored",
    ),
    Feature("going on from a stored response", {RESPONSES: REFUSED(previous_response_id="resp_1")}),
    Feature(
        "stored conversations and prompts",
        {
            RESPONSES: REFUSED(conversation="conv_1"),
            MESSAGES: REFUSED("thread_unsupported_request", thread={"type": "create"}),
        },
        "clients of Messages know this code and send everything",
    ),
    Feature("responses in the background", {RESPONSES: REFUSED(background=True)}),
    Feature(
        "marks for the cache",
        {
            MESSAGES: SERVED(
                messages=_content({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}})
            ),
            RESPONSES: SERVED(prompt_cache_key="session"),
        },
        "every prompt is cached, with marks and without",
    ),
    Feature("separated caches", {CHAT: SERVED(cache_salt="me"), COMPLETIONS: SERVED(cache_salt="me")}),
    Feature(
        "documents and files",
        {
            CHAT: REFUSED(messages=_content({"type": "file", "file": {"file_id": "x"}})),
            RESPONSES: REFUSED(input=_content({"type": "input_file", "file_id": "x"})),
            MESSAGES: REFUSED(messages=_content({"type": "document", "source": {}})),
        },
    ),
    Feature(
        "sound",
        {CHAT: REFUSED(audio={"voice": "x", "format": "wav"}, modalities=["text", "audio"])},
    ),
    Feature("predicted outputs", {CHAT: REFUSED(prediction={"type": "content", "content": "x"})}),
    Feature(
        "words about the sender",
        {
            CHAT: BYPASSED("user", user="me"),
            COMPLETIONS: BYPASSED("user", user="me"),
            RESPONSES: SERVED(user="me", metadata={"a": "b"}),
            MESSAGES: BYPASSED("metadata", metadata={"user_id": "me"}),
        },
        "the Responses object repeats them",
    ),
    Feature(
        "edits of the context by the service",
        {
            RESPONSES: BYPASSED("truncation", truncation="auto"),
            MESSAGES: BYPASSED("context_management", context_management={"edits": []}),
        },
        "a prompt that is too long is an error",
    ),
    Feature(
        "unknown fields",
        {protocol: BYPASSED("no_such_field", no_such_field=1) for protocol in Protocol},
    ),
)
