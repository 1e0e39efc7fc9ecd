"""Structured output: what an answer must look like, as a grammar over the model's tokens.

The front turns a request's constraint into a grammar (`constraint`), composes it with the way the model
writes its output (`compose`) and checks it in a process of its own (`checker`), so that no schema can hold up
or end the server. The engine compiles it against the model's vocabulary and walks it (`vocabulary`,
`matcher`). Grammars are llguidance's (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from flare.grammar.checker import GrammarChecker
from flare.grammar.compose import compose
from flare.grammar.constraint import Constraint, any_object, choice, json_schema, lark, regex
from flare.grammar.errors import GrammarError
from flare.grammar.matcher import Matcher
from flare.grammar.vocabulary import Vocabulary

__all__ = [
    "Constraint",
    "GrammarChecker",
    "GrammarError",
    "Matcher",
    "Vocabulary",
    "any_object",
    "choice",
    "compose",
    "json_schema",
    "lark",
    "regex",
]
