"""The page at `/`: a chat with the served model and what the server is doing, for people with a browser.

`web/` holds it as it is sent: HTML, style and ES modules, without a build step and without anything from
elsewhere. It talks to the server as any client does.
"""

from flare.server.page.routes import add_page_routes

__all__ = ["add_page_routes"]
