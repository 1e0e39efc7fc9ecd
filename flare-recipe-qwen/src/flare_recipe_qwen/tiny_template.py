"""Chat template of the tiny checkpoint: what the published one does, in words of its own.

Tools in front of the system message, calls as tagged parameters, results grouped in turns of the user,
reasoning kept or dropped in front of the last question, levels of effort, placeholders of images, refusals.
"""

from __future__ import annotations

TEMPLATE = r"""
{#- Text of a message: a string, or parts of it. -#}
{%- set seen = namespace(images=0) %}
{%- macro body(content, count=false, role='') %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is mapping %}
        {{- raise_exception('Content must be text or a list.') }}
    {%- elif content is iterable %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image_url' in part %}
                {%- if role == 'system' %}
                    {{- raise_exception('A system message has no images.') }}
                {%- endif %}
                {%- set seen.images = seen.images + (1 if count else 0) %}
                {{- 'Picture ' ~ seen.images ~ ': ' if add_vision_id is true }}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('A part is neither text nor an image.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content %}
        {{- raise_exception('Content must be text or a list.') }}
    {%- endif %}
{%- endmacro %}
{%- macro call(function) %}
    {{- '<tool_call>\n<function=' ~ function.name ~ '>\n' }}
    {%- for key, value in (function.arguments or {}) | items %}
        {{- '<parameter=' ~ key ~ '>\n' }}
        {{- value | tojson if value is mapping or (value is sequence and value is not string) else value }}
        {{- '\n</parameter>\n' }}
    {%- endfor %}
    {{- '</function>\n</tool_call>' }}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('There are no messages.') }}
{%- endif %}

{#- One system turn: tools, effort, and what the first message says. -#}
{%- set effort = reasoning_effort | default('xhigh') %}
{%- if effort not in ['xhigh', 'medium', 'low'] %}
    {{- raise_exception('reasoning_effort is xhigh, medium or low.') }}
{%- endif %}
{%- set opening = [] %}
{%- if tools %}
    {%- set listed = namespace(text='# Tools\n\nThese functions can be called:\n\n<tools>') %}
    {%- for tool in tools %}
        {%- set listed.text = listed.text ~ '\n' ~ (tool | tojson) %}
    {%- endfor %}
    {%- set opening = opening + [listed.text ~ '\n</tools>\n\nA call looks like this, nothing follows it:\n\n'
        ~ '<tool_call>\n<function=NAME>\n<parameter=KEY>\nvalue\n</parameter>\n</function>\n</tool_call>'] %}
{%- endif %}
{%- if enable_thinking | default(true) and effort != 'medium' %}
    {%- set opening = opening + ['Think hard.' if effort == 'xhigh' else 'Think briefly.'] %}
{%- endif %}
{%- if messages[0].role == 'system' %}
    {%- set first = body(messages[0].content, role='system') | trim %}
    {%- if first or not opening %}
        {%- set opening = opening + [first] %}
    {%- endif %}
{%- endif %}
{%- if opening %}
    {{- '<|im_start|>system\n' ~ opening | join('\n\n') ~ '<|im_end|>\n' }}
{%- endif %}

{#- The last question of the user: reasoning behind it is of the running turn. -#}
{%- set last = namespace(question=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and last.question < 0 %}
        {%- set asked = body(message.content) | trim %}
        {%- if not (asked.startswith('<tool_response>') and asked.endswith('</tool_response>')) %}
            {%- set last.question = loop.revindex0 %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if last.question < 0 %}
    {{- raise_exception('No message asks anything.') }}
{%- endif %}

{%- for message in messages %}
    {%- set content = body(message.content, true, message.role) | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- raise_exception('The system message comes first.') }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\n' ~ content ~ '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if preserve_thinking | default(true) or loop.index0 > last.question %}
            {{- '<think>\n' ~ thoughts | trim ~ '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for made in message.tool_calls or [] %}
            {{- '\n' if not loop.first else '\n\n' if content else '' }}
            {{- call(made.function if made.function is defined else made) }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.previtem is undefined or loop.previtem.role != 'tool' }}
        {{- '\n<tool_response>\n' ~ content ~ '\n</tool_response>' }}
        {{- '<|im_end|>\n' if loop.nextitem is undefined or loop.nextitem.role != 'tool' }}
    {%- else %}
        {{- raise_exception('Nobody has the role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n<think>\n' }}
    {{- '\n</think>\n\n' if enable_thinking is defined and enable_thinking is false }}
{%- endif %}
"""
