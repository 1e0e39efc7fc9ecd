"""The Messages protocol: `/v1/messages` (https://docs.claude.com/en/api/messages).

`body` is what clients send, `turn` brings it to the shape of a chat, `blocks` its contents, `format` writes
responses and events, `errors` the protocol's own envelope.
"""
