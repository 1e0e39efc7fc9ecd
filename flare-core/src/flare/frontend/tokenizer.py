"""Text to token ids and back, on a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from flare.errors import CoreError
from flare.frontend.errors import TooManyTokens
from flare.frontend.prefix_tokens import PrefixTokens

_LONG = 1000  # tokens; decoding fewer takes less than switching threads


class Tokenizer:
    """Wraps a `tokenizers.Tokenizer`. Safe to use from several threads.

    Post-processors never add tokens here: a chat template writes its own control tokens, and a plain prompt
    gets a leading `bos` id only when the caller passes one.

    Raises CoreError when `data` is not a `tokenizer.json`.
    """

    def __init__(self, data: bytes, bos: str | None = None) -> None:
        try:
            self._backend = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises bare Exception
            raise CoreError(
                f"the tokenizer cannot be read: {error}", field="frontend.tokenizer_asset"
            ) from None
        self._backend.no_truncation()
        self._backend.no_padding()
        self._prefixes = PrefixTokens(self._backend, self._encoding)
        self._bos: tuple[int, ...] = ()
        if bos is not None:
            token = self._backend.token_to_id(bos)
            if token is None:
                raise CoreError(f"the tokenizer has no token {bos!r}", field="frontend.special_tokens")
            self._bos = (token,)

    @property
    def vocab_size(self) -> int:
        """Tokens with an entry, added ones included; a model's vocabulary may be padded beyond."""
        size: int = self._backend.get_vocab_size()
        return size

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """Token ids of `text`; control tokens written out in it become their ids. Raises TooManyTokens for
        more than `most`."""
        # The batch form lets other Python threads run meanwhile; the single form does not.
        encoding = self._backend.encode_batch_fast([text], add_special_tokens=False)[0]
        # Asked before the ids are made, which for a huge text would keep other threads waiting.
        if most is not None and len(encoding) > most:
            raise TooManyTokens(len(encoding), most)
        ids: list[int] = encoding.ids
        return ids

    def encode_marked(
        self, text: str, marks: Sequence[int], most: int | None = None
    ) -> tuple[list[int], tuple[int, ...]]:
        """`encode`, and the numbers of leading tokens that end exactly at the characters `marks`. Of a text
        that begins as an earlier one did only the rest is tokenized."""
        return self._prefixes.encode(text, marks, most)

    def _encoding(self, text: str) -> tokenizers.Encoding:
        return self._backend.encode_batch([text], add_special_tokens=False)[0]

    def encode_prompt(self, text: str, most: int | None = None) -> list[int]:
        """`encode`, after the beginning-of-sequence token where the model wants one."""
        return [*self._bos, *self.encode(text, most)]

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Text of `tokens`; U+FFFD stands for bytes that are not UTF-8. Unknown ids have no text."""
        if len(tokens) > _LONG:
            # The batch form lets other Python threads run meanwhile.
            return str(self._backend.decode_batch([tokens], skip_special_tokens=skip_special)[0])
        text: str = self._backend.decode(tokens, skip_special_tokens=skip_special)
        return text

    def token(self, text: str) -> int | None:
        """The token whose vocabulary entry is `text`, such as a control token; None when there is none."""
        token: int | None = self._backend.token_to_id(text)
        return token

    def piece(self, token: int) -> str | None:
        """The vocabulary entry of `token` as stored, or None for ids without one."""
        piece: str | None = self._backend.id_to_token(token)
        return piece
