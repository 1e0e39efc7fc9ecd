"""HTTP: OpenAI-compatible endpoints, tokenization, health, metrics, and what an operator needs."""

from flare.server.app import create_app
from flare.server.identity import CoreIdentity
from flare.server.keys import ApiKeys, read_key_file
from flare.server.logs import configure_logging
from flare.server.notify import notify
from flare.server.serving import listen, serve
from flare.server.settings import ServerSettings

__all__ = [
    "ApiKeys",
    "CoreIdentity",
    "ServerSettings",
    "configure_logging",
    "create_app",
    "listen",
    "notify",
    "read_key_file",
    "serve",
]
