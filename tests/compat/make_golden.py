"""Makes the golden files of this version: a CPU core, a sim core, what each answers, the contract's shape.

Run by `scripts/golden`, never by tests. Existing files stay as they are.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from prepared_cores import prepare_tiny
from rewritten_core import rewrite

import flare.contract
from flare import __version__
from flare.contract import ContractModel, DType, PreparedContract
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec, read_contract
from flare.device import LoadOptions, load_device
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Event, Sampling, Submit, Tokens
from flare.prepare.calibrate import record_oracle
from flare.testing.hash_model import HashModel
from flare_recipe_smollm.recipe import RECIPE

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
LENGTHS = (1, 13, 70)  # prompts within one page, one chunk, several chunks
TOKENS = 24


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, make in (("tiny-cpu", make_cpu), ("hash-sim", make_sim)):
        core = GOLDEN / f"{__version__}-{name}.core.safetensors"
        if core.exists():
            print(f"{core.name} is there already")
            continue
        make(core)
        answers = [answer(core, length, seed) for seed, length in enumerate(LENGTHS)]
        lines = ",\n".join(json.dumps(one) for one in answers)
        core.with_name(f"{__version__}-{name}.json").write_text(f'{{"requests": [\n{lines}\n]}}\n')
        print(f"{core.name}: {core.stat().st_size} bytes")
    shape = GOLDEN / f"{__version__}-contract.json"
    if not shape.exists():
        shape.write_text(json.dumps(contract_shape(), indent=1, sort_keys=True) + "\n")


def make_cpu(core: Path) -> None:
    """The example recipe's tiny checkpoint in float32, its oracle drawn by one thread."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = RECIPE.oracle.tiny_checkpoint(Path(folder) / "tiny")
        rewrite(prepare_tiny(checkpoint, DType.F32), core)  # without the reserve in the header


def make_sim(core: Path) -> None:
    """The hash model: every kind of state, exact on any machine."""
    image = HashModel(context=128).build()
    specs = [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in image.tensors.items()]
    with CoreWriter(core, specs, header_budget_bytes=1 << 17) as writer:
        for name, data in image.tensors.items():
            writer.write(name, data)
        device = load_device(image.contract, writer)
        oracle = record_oracle(device, [5, 6, 7, 8, 9])
        device.close()
        provenance = image.contract.provenance.model_copy(update={"oracle": oracle})
        contract = image.contract.model_copy(update={"provenance": provenance})
        writer.seal(contract.model_dump_json())


def answer(core: Path, length: int, seed: int) -> dict[str, Any]:
    """One request and what it gets, as token ids, with the model's log-probabilities where it has any."""
    with CoreReader(core) as reader:
        contract = read_contract(reader)
    prompt = tuple((7 * i + seed) % (contract.frontend.vocab_size - 5) + 3 for i in range(length))
    wanted = 0 if contract.capacities.logprobs else None
    defaults = contract.frontend.default_sampling
    sampling = Sampling(
        temperature=defaults.temperature, top_p=defaults.top_p, top_k=defaults.top_k, seed=seed
    )
    events: list[Event] = []
    engine = Engine(load_core(str(core), LoadOptions(threads=1)), events.append)
    engine.submit(
        Submit(request_id="r", prompt=prompt, sampling=sampling, max_tokens=TOKENS, logprobs=wanted)
    )
    while engine.step():
        pass
    engine.close()
    drawn = [event for event in events if isinstance(event, Tokens)]
    request: dict[str, Any] = {"prompt": prompt, "seed": seed, "max_tokens": TOKENS}
    request["tokens"] = [token for event in drawn for token in event.tokens]
    if wanted is not None:
        request["logprobs"] = [entry.logprob for event in drawn for entry in event.logprobs]
    return request


def contract_shape() -> dict[str, Any]:
    """Fields of every contract model (`required` or not) and values of every enumeration in it."""
    models = {model.__name__: model for model in subclasses(ContractModel)}
    assert PreparedContract.__name__ in models
    enums = {
        name: [member.value for member in kind]
        for name, kind in inspect.getmembers(flare.contract, inspect.isclass)
        if issubclass(kind, Enum)
    }
    fields = {
        name: {field: info.is_required() for field, info in model.model_fields.items()}
        for name, model in models.items()
    }
    return {"models": fields, "enums": enums}


def subclasses(model: type[ContractModel]) -> Iterator[type[ContractModel]]:
    """All contract models of the package, however deep."""
    for kind in model.__subclasses__():
        if kind.__module__.startswith("flare.contract"):
            yield kind
            yield from subclasses(kind)


if __name__ == "__main__":
    main()
