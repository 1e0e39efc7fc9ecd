"""The page pool: physical pages 1 and up; page 0 is the null page that padding entries point to."""

from __future__ import annotations

from flare.cache.pool import FencedPool

NULL_PAGE = 0


class PagePool(FencedPool):
    """`pages` physical pages (the null page included) of `page_tokens` tokens each."""

    def __init__(self, pages: int, page_tokens: int) -> None:
        super().__init__(first=NULL_PAGE + 1, count=pages - 1)
        self.page_tokens = page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_tokens)
