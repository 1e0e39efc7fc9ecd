"""HTTP: OpenAI-compatible endpoints, health and readiness."""

from flare.server.app import create_app
from flare.server.serving import listen, serve
from flare.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "listen", "serve"]
