"""Running a plugin: import, registration with pluggy, and hooks, so that whatever it does is one error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pluggy
from pydantic import BaseModel, ValidationError

from flare.errors import PluginError
from flare.recipes import hookspecs
from flare.recipes.metadata import PluginEntry

_LONGEST = 300  # characters of a reason; the traceback has all of it


class Refusal(PluginError):
    """What Flare itself finds wrong with a plugin; the message is one line and there is no cause."""


def answers_of(entry: PluginEntry, hook: str) -> list[Any]:
    """Import the plugin behind `entry` and ask it for `hook`: what it listed, of any type.

    Raises: PluginError, whose message is one line and whose cause is what the plugin raised (SystemExit
    included, ctrl-C excepted), when its metadata is defective, it needs another flare-core, cannot be
    imported, has hooks that do not exist or differ from their specification, or fails.
    """
    if entry.defect is not None:
        raise Refusal(entry.defect)
    if entry.unmet is not None:
        raise Refusal(f"needs {entry.unmet}")
    with contained(entry.module):
        plugin = entry.load()
        manager = registered(plugin, f"{entry.distribution}:{entry.name}")
        if not manager.get_hookcallers(plugin):
            raise Refusal(_no_hook(plugin))
        return asked(manager, hook)


def registered(plugin: object, name: str) -> pluggy.PluginManager:
    """A manager with this one plugin. Raises: PluginValidationError for unknown or misdeclared hooks."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=name)
    manager.check_pending()
    return manager


def asked(manager: pluggy.PluginManager, hook: str) -> list[Any]:
    """The items of all answers to `hook`. Raises: Refusal for an answer that is no list of items."""
    answers = getattr(manager.hook, hook)()
    for answer in answers:
        # A model of pydantic can be iterated too, over its fields.
        if not hasattr(answer, "__iter__") or isinstance(answer, BaseModel):
            raise Refusal(f"{hook} gave a {type(answer).__name__}, not a list")
    return [item for answer in answers for item in answer]


@contextlib.contextmanager
def contained(module: str) -> Iterator[None]:
    """Turn whatever the code of a plugin raises into a PluginError; `module` is what should be imported."""
    try:
        yield
    except (KeyboardInterrupt, Refusal):
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end the command line
        raise PluginError(explain(error, module)) from error


@contextlib.contextmanager
def output_aside() -> Iterator[None]:
    """Send what plugins print to standard error, through `sys.stdout` or its descriptor: standard output may
    be parsed."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a closed descriptor takes no output anyway
            _flush()
            saved = os.dup(1)
            stack.callback(os.close, saved)
            os.dup2(2, 1)
            stack.callback(os.dup2, saved, 1)
            stack.callback(_flush)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def explain(error: BaseException, module: str = "") -> str:
    """One printable line for an exception of a plugin. `module` is its module: when that itself is missing,
    the metadata outlived the code."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"its module {module} is not there; install the package again, or uninstall what is left of it"
    if isinstance(error, ValidationError):
        problems = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return f"{error.title}: {_printable('; '.join(problems))}"
    try:
        text = str(error)
    except Exception:  # not even its message can be had
        text = ""
    return f"{type(error).__name__}: {_printable(text)}" if text else type(error).__name__


def _flush() -> None:
    """What was printed so far goes where it was meant to go."""
    with contextlib.suppress(OSError, ValueError):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()


def _no_hook(plugin: object) -> str:
    if isinstance(plugin, ModuleType) and getattr(plugin, "__file__", None) is None:
        return f"its module {plugin.__name__} is a directory without code; install the package again"
    return "implements no hook of flare (is @hookimpl missing?)"


def _printable(text: str) -> str:
    """As one line of bounded length, without what would steer a terminal."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
