"""From `random://TYPE?…` or `random://FILE.json?…` to a configuration and the shapes of its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from flare.errors import CheckpointError
from flare.prepare.checkpoint_assets import read_json

_SHORT = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "context": "max_position_embeddings",
}
_DEVIATION = 0.02  # where the configuration names none


@dataclass(frozen=True)
class Geometry:
    """`config` as in a `config.json`; `tensors` name to shape, tied ones once."""

    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    seed: int
    deviation: float


def read_geometry(uri: str) -> Geometry:
    """The geometry that `uri` describes, built by Transformers without any weights.

    Raises CheckpointError for a type, file, field or value that is none.
    """
    name, _, query = uri.removeprefix("random://").partition("?")
    fields = {_SHORT.get(key, key): _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    seed = fields.pop("seed", 0)
    if not isinstance(seed, int):
        raise CheckpointError(f"{uri}: seed is a whole number", field="seed")
    config = _config(unquote(name), fields, uri)
    model = _model(config, uri)
    shapes: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    for tensor_name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            shapes[tensor_name] = tuple(tensor.shape)
    described = json.loads(config.to_json_string(use_diff=False))
    described["architectures"] = [type(model).__name__]
    deviation = getattr(config, "initializer_range", None) or _DEVIATION
    return Geometry(described, shapes, seed, float(deviation))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _config(name: str, fields: Mapping[str, Any], uri: str) -> Any:
    try:
        from transformers import CONFIG_MAPPING
    except ImportError as error:
        raise CheckpointError(
            "random weights need transformers: pip install transformers", field="checkpoint"
        ) from error
    given: dict[str, Any] = {}
    kind = name
    if name.endswith(".json"):
        read = read_json(Path(name).expanduser())
        if read is None:
            raise CheckpointError(f"{uri}: there is no file {name}", field="checkpoint")
        given = {key: value for key, value in read.items() if key != "architectures"}
        kind = given.pop("model_type", "")
    if kind not in CONFIG_MAPPING:
        raise CheckpointError(
            f"{uri}: {kind!r} is no model type of transformers; write random://TYPE?layers=…&hidden=… or "
            "random://FILE.json",
            field="checkpoint",
        )
    default = CONFIG_MAPPING[kind]()
    for field in fields:
        if not hasattr(default, field):
            raise CheckpointError(f"{uri}: a configuration of {kind} has no field {field}", field=field)
    try:
        return CONFIG_MAPPING[kind](**{**given, **fields})
    except Exception as error:  # each configuration checks its fields in its own way
        raise CheckpointError(f"{uri}: {error}", field="checkpoint") from error


def _model(config: Any, uri: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except Exception as error:  # whatever a model's constructor makes of sizes that do not go together
        raise CheckpointError(f"{uri} is no possible model: {error}", field="checkpoint") from error
