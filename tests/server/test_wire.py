from __future__ import annotations

import json

import pytest

from flare.server.wire import json_bytes


@pytest.mark.parametrize("text", ["plain", "é 🙂 語", "a\u2028b\u2029c\x85d", "\n\r\x0b\x0c\x1c\x00", '"\\'])
def test_an_event_is_one_line_for_every_client(text: str) -> None:
    data = json_bytes({"text": text})

    assert json.loads(data) == {"text": text}
    assert len(data.decode().splitlines()) == 1
