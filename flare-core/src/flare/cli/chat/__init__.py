"""`flare chat`: a conversation with a running server in the terminal.

`command` has the options, `loop` what happens in which order; `client` speaks to the server, `answer` is what
came, `history` what was said so far, `display` shows it and `lines` reads what is typed. Importing this room
does not import an HTTP client.
"""

from flare.cli.chat.command import chat

__all__ = ["chat"]
