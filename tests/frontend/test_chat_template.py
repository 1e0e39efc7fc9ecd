"""Template bytes are those of Transformers."""

from __future__ import annotations

import pytest
import tokenizers
from conversations import CONVERSATIONS as ALL
from transformers import PreTrainedTokenizerFast

from flare.errors import CoreError, RequestError
from flare.frontend import ChatTemplate, normalize_messages
from flare.frontend.message_form import MessageForm
from flare.testing.reference_prompts import documented
from flare.testing.tiny_text import CHAT_TEMPLATE, END, START, tiny_tokenizer

SYSTEM_FIRST = """\
{%- if messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
    {% if message.role == 'user' and loop.index0 > 5 %}
        {% continue %}
    {% endif %}
    {%- generation -%}
<|im_start|>{{ message.role }}
{{ message.content | trim }}<|im_end|>
    {% endgeneration %}
    {% if loop.index0 == 7 %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt -%}
<|im_start|>assistant
{% endif %}
"""
DUMPS = (
    "{{ bos_token }}{{ messages | tojson }}|{{ messages[0] | tojson(indent=2) }}|"
    "{{ {'b': 1, 'a': [1.5, none]} | tojson(sort_keys=True, separators=(',', ':')) }}|"
    "{{ tools is none }}{{ documents is none }}{{ missing }}{{ eos_token }}"
)
NAMESPACE = (
    "{% set ns = namespace(count=0, last='') %}{% for m in messages %}"
    "{% set ns.count = ns.count + 1 %}{% set ns.last = m.role %}{{ m.name or '' }}"
    "{% endfor %}{{ ns.count }}{{ ns.last }}{{ dict(a=1).items() | list }}{{ dict.fromkeys('ab', 1) }}"
    "{{ dict([('b', 1)], c=2) }}{{ namespace(self=3, x=none).self }}{{ namespace({'y': 4}).y }}"
)
WITH_TOOLS = (
    "{% for t in tools or [] %}{{ t | tojson }};{{ t.function.name }};{{ t | tojson(indent=1) }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.reasoning_content }}|{{ m.thinking }}|"
    "{{ m.reasoning }}{% for c in m.tool_calls or [] %}"
    "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}{{ c | tojson }}"
    "{% generation %}{% set inner = c.id %}{{ inner }}{% endgeneration %}{{ inner }}{% endfor %}"
    "{% endfor %}"
)
CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello"}],
    "spaces": [
        {"role": "system", "content": "  indented\n\n"},
        {"role": "user", "content": "\ttabs \r\n<b>&amp; 'quotes' \"double\"</b>"},
    ],
    "late system": [
        {"role": "user", "content": "1 < 2"},
        {"role": "assistant", "content": ""},
        {"role": "system", "content": "été 🙂 \u2028 日本"},
        {"role": "user", "content": "{{ 7 * 7 }}{% raw %}", "name": "Zoë"},
    ],
    "long": [{"role": ("user", "assistant")[i % 2], "content": f"turn {i}"} for i in range(12)],
}


def reference(template: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str()),
        bos_token=START,
        eos_token=END,
        chat_template=template,
    )


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("template", [CHAT_TEMPLATE, SYSTEM_FIRST, DUMPS, NAMESPACE])
def test_same_bytes_as_transformers(template: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    expected = reference(template).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    ours = ChatTemplate(template, {"bos_token": START, "eos_token": END})

    assert ours.render(normalize_messages(messages)).text == expected


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_same_tokens_as_transformers(conversation: str) -> None:
    from flare.frontend import Prompts
    from flare.testing.tiny_text import tiny_assets

    messages = CONVERSATIONS[conversation]
    expected = reference(CHAT_TEMPLATE).apply_chat_template(messages, add_generation_prompt=True)

    assert list(Prompts(tiny_assets()).from_messages(messages).tokens) == list(expected["input_ids"])


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if not one.has_images])
def test_tools_and_calls_are_those_of_transformers(name: str) -> None:
    conversation = ALL[name]
    template = ChatTemplate(WITH_TOOLS, {})
    assert template.form == MessageForm()
    messages = [documented(message, template.form) for message in conversation.messages]
    expected = reference(WITH_TOOLS).apply_chat_template(messages, tools=conversation.tools, tokenize=False)

    ours = normalize_messages(conversation.messages)

    assert template.render(ours, False, tools=conversation.tools).text == expected


def test_strftime_now_gives_this_year() -> None:
    from datetime import datetime

    rendered = ChatTemplate("{{ strftime_now('%Y') }}", {}).render([]).text

    assert rendered in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_a_second_render_is_the_same() -> None:
    template = ChatTemplate(NAMESPACE, {})
    messages = normalize_messages(CONVERSATIONS["late system"])

    assert template.render(messages) == template.render(messages)


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ messages[9].role.x.y }}", "no element 9"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ dict.update(messages[0], a=1) }}", "update"),
        ("{{ namespace(_a=1) }}", "_a"),
        ("{% set n = namespace() %}{% set n._a = 1 %}", "_a"),
    ],
)
def test_a_template_that_refuses_names_the_messages(source: str, fragment: str) -> None:
    with pytest.raises(RequestError, match=fragment) as caught:
        ChatTemplate(source, {}).render(normalize_messages(CONVERSATIONS["one"]))
    assert caught.value.field == "messages"


@pytest.mark.parametrize("source", ["{% if %}", "{{ messages", "{{ messages | no_such_filter }}"])
def test_a_broken_template_is_a_core_error(source: str) -> None:
    with pytest.raises(CoreError) as caught:
        ChatTemplate(source, {})
    assert caught.value.field == "frontend.template_asset"
