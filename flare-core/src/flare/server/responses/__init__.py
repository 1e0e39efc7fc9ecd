"""The Responses protocol without stored state: `/v1/responses`
(https://platform.openai.com/docs/api-reference/responses).

`body` is what clients send, `turn` brings it to the shape of a chat, `items` its input and `offer` its tools;
`output` makes items of what the model wrote, `response` the object around them, `format` the events.
"""
