"""Errors a person can cause or fix. Bugs are assertions; these carry what to do about it."""

from __future__ import annotations


class FlareError(ValueError):
    """Base of every typed error. `field` names the input, setting or core field at fault."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class CoreError(FlareError):
    """A runtime core cannot be read: truncated, altered, foreign, too new or impossible."""

    code = "invalid_core"


class VerificationError(FlareError):
    """A core is readable but not what it says: damaged contents, or results that are not its own."""

    code = "verification_failed"


class CheckpointError(FlareError):
    """A checkpoint cannot be found, fetched or mapped."""

    code = "invalid_checkpoint"


class PluginError(FlareError):
    """Installed code of a third party is broken or does not fit. Its own exception, where there was one, is
    the cause, and the command line prints its traceback."""

    code = "invalid_plugin"


class RecipeError(PluginError):
    """A recipe is unknown, broken or does not fit this version."""

    code = "invalid_recipe"


class CapacityError(FlareError):
    """Requested capacities do not fit; the message gives the numbers."""

    code = "capacity"


class CacheError(FlareError):
    """A host or disk cache cannot be set up: no room, no permission, or in use by another process."""

    code = "cache"


class DeviceError(FlareError):
    """A device or one of its programs failed."""

    code = "device"


class RequestError(FlareError):
    """A client's request is refused before admission (HTTP 400)."""

    code = "invalid_request"


class UnavailableError(FlareError):
    """The server cannot take the request now (HTTP 503)."""

    code = "unavailable"


class ExecutionError(FlareError):
    """Execution failed after admission (HTTP 500, or an error event in an open stream)."""

    code = "execution_failed"
