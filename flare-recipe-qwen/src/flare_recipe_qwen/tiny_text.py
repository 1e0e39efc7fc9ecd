"""Tokenizer and chat template of the tiny checkpoint: the real ones' marks, and a token for every byte."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TOKENS = {token: index for index, token in enumerate((*_SPECIAL, *_PLAIN))}
"""Ids of the added tokens; bytes follow."""


def tokenizer() -> Tokenizer:
    """Added tokens first, then one for every byte; no merges."""
    symbols = (*TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()))
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIAL])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in _PLAIN])
    return made


TEMPLATE = """\
{%- macro parts(content) %}
{%- if content is string %}{{ content }}
{%- else %}
{%- for part in content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>
{%- else %}{{ part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- if reasoning_effort is defined %}<|im_start|>system
Reasoning effort: {{ reasoning_effort }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ parts(message.content) }}
</tool_response><|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{% if message.reasoning_content and preserve_thinking | default(true) %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ parts(message.content) }}
{%- for call in message.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments.items() %}<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ parts(message.content) }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% if not enable_thinking | default(true) %}

</think>

{% endif %}
{%- endif %}
"""
