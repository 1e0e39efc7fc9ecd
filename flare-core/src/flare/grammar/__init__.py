"""Structured output: what an answer must look like, as a grammar over the model's tokens.

The front turns a request's constraint into a grammar (`constraint`), composes it with the way the model
writes its output (`compose`) and checks it in a process of its own (`checker`), so that no schema can hold up
or end the server. It is compiled against the model's vocabulary and walked (`vocabulary`, `matcher`,
`walks`) in another process beside the engine (`remote`, `walker`). Grammars are llguidance's
(https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from flare.grammar.checker import GrammarChecker
from flare.grammar.compose import compose
from flare.grammar.constraint import Constraint, any_object, choice, json_schema, lark, regex
from flare.grammar.errors import GrammarError
from flare.grammar.matcher import Matcher
from flare.grammar.questions import Start
from flare.grammar.remote import RemoteWalks
from flare.grammar.vocabulary import Vocabulary
from flare.grammar.walks import LocalWalks, Walks

__all__ = [
    "Constraint",
    "GrammarChecker",
    "GrammarError",
    "LocalWalks",
    "Matcher",
    "RemoteWalks",
    "Start",
    "Vocabulary",
    "Walks",
    "any_object",
    "choice",
    "compose",
    "json_schema",
    "lark",
    "regex",
]
