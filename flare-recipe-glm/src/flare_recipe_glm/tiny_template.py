"""Chat template of the tiny checkpoint: what the published one does, in words of its own.

The reasoning effort first, then tools; turns without line ends, calls as keys and values, results of one turn
behind each other, reasoning opened by the prompt, and that of earlier turns dropped when asked for.
"""

from __future__ import annotations

TEMPLATE = r"""
{#- Text of a message: a string, or parts of it. -#}
{%- macro body(content) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is mapping %}
        {{- raise_exception('Content must be text or a list.') }}
    {%- elif content is iterable %}
        {%- for part in content %}
            {%- if part is string %}
                {{- part }}
            {%- elif part.type in ['image', 'image_url'] %}
                {{- '<|begin_of_image|><|image|><|end_of_image|>' }}
            {%- elif part.type == 'text' %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('A part is neither text nor an image.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is not none %}
        {{- raise_exception('Content must be text or a list.') }}
    {%- endif %}
{%- endmacro %}
{%- macro call(function) %}
    {{- '<tool_call>' ~ function.name }}
    {%- for key, value in (function.arguments or {}) | items %}
        {{- '<arg_key>' ~ key ~ '</arg_key><arg_value>' }}
        {{- value if value is string else value | tojson(ensure_ascii=False) }}
        {{- '</arg_value>' }}
    {%- endfor %}
    {{- '</tool_call>' }}
{%- endmacro %}

{#- The beginning: effort and tools. -#}
{{- '[gMASK]<sop><|system|>Reasoning Effort: ' }}
{{- (reasoning_effort if reasoning_effort in ['low', 'high'] else 'max') | capitalize }}
{%- if tools %}
    {{- '<|system|>\n# Tools\n\nThese functions can be called:\n<tools>\n' }}
    {%- for tool in tools %}
        {{- (tool.function if tool.function is defined else tool) | tojson(ensure_ascii=False) ~ '\n' }}
    {%- endfor %}
    {{- '</tools>\n\nA call names the function, then keys and values of its arguments:\n' }}
    {{- '<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>' }}
{%- endif %}

{#- The last question of the user: reasoning behind it is of the running turn. -#}
{%- set last = namespace(question=-1) %}
{%- for message in messages | reverse %}
    {%- if message.role == 'user' %}
        {%- set last.question = loop.revindex0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}

{%- for message in messages %}
    {%- if message.role in ['system', 'user'] %}
        {{- '<|' ~ message.role ~ '|>' ~ body(message.content) }}
    {%- elif message.role == 'assistant' %}
        {%- set content = body(message.content) %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1] %}
        {%- endif %}
        {{- '<|assistant|><think>' }}
        {{- thoughts if not clear_thinking | default(false) or loop.index0 > last.question }}
        {{- '</think>' ~ content | trim }}
        {%- for made in message.tool_calls or [] %}
            {{- call(made.function if made.function is defined else made) }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<|observation|>' if loop.previtem is undefined or loop.previtem.role != 'tool' }}
        {{- '<tool_response>' ~ body(message.content) ~ '</tool_response>' }}
    {%- else %}
        {{- raise_exception('Nobody has the role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{{- '<|assistant|><think>' if add_generation_prompt }}
"""
