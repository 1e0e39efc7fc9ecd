"""Images that requests name by the address of another server: refused, unless the operator allows its host.

`domains` says which hosts, `addresses` where they may be, `fetch` gets the bytes. Nothing of the client
or of this server travels along: no cookies, no credentials, no proxy of the environment.
"""

from flare.server.remote_images.domains import AllowedDomains
from flare.server.remote_images.fetch import RemoteImages

__all__ = ["AllowedDomains", "RemoteImages"]
