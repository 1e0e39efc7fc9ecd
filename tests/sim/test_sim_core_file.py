"""A core for the sim device is a core file like any other."""

from pathlib import Path

from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec, read_contract
from flare.device import load_device
from flare.engine.loop import Engine
from flare.engine.messages import Event, Sampling, Submit, Tokens
from flare.scheduler import Settings
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle


def test_a_hash_core_is_written_loaded_and_served(tmp_path: Path) -> None:
    image = HashModel().build()
    specs = [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in image.tensors.items()]
    path = tmp_path / "hash.core.safetensors"
    with CoreWriter(path, specs) as writer:
        for name, data in image.tensors.items():
            writer.write(name, data)
        writer.seal(image.contract_json)
    events: list[Event] = []
    with CoreReader(path) as reader:
        engine = Engine(load_device(read_contract(reader), reader), events.append, Settings())
        sampling = Sampling(temperature=1.0, seed=11)
        engine.submit(Submit(request_id="a", prompt=(5, 6, 7), sampling=sampling, max_tokens=8))
        while engine.step():
            pass
        engine.close()
    drawn = [token for event in events if isinstance(event, Tokens) for token in event.tokens]
    assert drawn == oracle((5, 6, 7), seed=11, max_tokens=8)
