"""Write the example model as a Hugging Face directory, for peers that read nothing else.

    python benchmarks/export_hf.py DIRECTORY [--model smollm2-135m]

The weights are those that Flare prepares: read by the recipe's own loader, rounded to bfloat16 once.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from flare.prepare import Checkpoint, CheckpointError
from flare.prepare.progress import Progress
from flare.prepare.sources import resolve_checkpoint
from flare.recipes import Recipe, discover, load_recipe


def open_published(model: str) -> Checkpoint:
    """The checkpoint that the recipe of `model` pins, opened. Raises CheckpointError and RecipeError."""
    descriptor, entry = discover().find_model(model)
    recipe: Recipe = load_recipe(descriptor)
    local = resolve_checkpoint(entry.checkpoint, pin=entry.sha256, progress=Progress())
    opened: Checkpoint = recipe.loader.open(local)
    return opened


def export(checkpoint: Checkpoint, directory: Path) -> None:
    """Write config.json, model.safetensors (bfloat16), tokenizer.json and tokenizer_config.json.

    `config.json` is written last: a directory that has one is complete. Raises: CheckpointError when the
    checkpoint has no tokenizer or no chat template.
    """
    assets = checkpoint.assets
    if assets.tokenizer is None or assets.chat_template is None:
        raise CheckpointError("the checkpoint has no tokenizer or no chat template", field="assets")
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: checkpoint.load(name).to(torch.bfloat16).contiguous() for name in checkpoint.tensors}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "tokenizer.json").write_bytes(assets.tokenizer)
    settings = {
        **assets.special_tokens,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": assets.chat_template,
        "model_max_length": checkpoint.config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    fields = {**checkpoint.config, "torch_dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(fields, indent=2))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", default="smollm2-135m", help="a model that `flare recipes` lists")
    options = parser.parse_args()
    export(open_published(options.model), options.directory)


if __name__ == "__main__":
    main()
