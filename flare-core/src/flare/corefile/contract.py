"""The contract of a core as a model, checked against the tensors that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from flare.contract import Initial, PreparedContract
from flare.corefile.reader import CoreReader
from flare.corefile.tensor import TensorSpec
from flare.errors import CoreError


def read_contract(reader: CoreReader) -> PreparedContract:
    """Parse the contract of an open core and check what it names. Raises CoreError naming the field at
    fault."""
    contract = parse_contract(reader)
    check_references(contract, reader.tensors)
    return contract


def parse_contract(reader: CoreReader) -> PreparedContract:
    """The contract of an open core, checked by itself. Raises CoreError naming the field at fault."""
    try:
        return PreparedContract.model_validate_json(reader.contract_json)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "contract"
        raise CoreError(f"{reader.path}: contract field {field}: {first['msg']}", field=field) from error


def check_references(contract: PreparedContract, tensors: Mapping[str, TensorSpec]) -> None:
    """Raise CoreError unless every tensor that the contract names exists and has the size it needs."""
    for field, name, nbytes in _references(contract):
        spec = tensors.get(name)
        if spec is None:
            raise CoreError(f"{field} names tensor {name!r}, which the core lacks", field=field)
        if nbytes is not None and spec.nbytes != nbytes:
            raise CoreError(f"{field} needs {nbytes} bytes, tensor {name!r} has {spec.nbytes}", field=field)


def _references(contract: PreparedContract) -> Iterator[tuple[str, str, int | None]]:
    for buffer in contract.buffers:
        if buffer.initial is Initial.BYTES:
            yield f"buffers.{buffer.name}.tensor", buffer.tensor or "", buffer.nbytes
    for program in contract.programs:
        for payload in program.payloads:
            yield f"programs.{program.name}.payloads.{payload.rank}.tensor", payload.tensor, None
    for table in contract.tables:
        yield f"tables.{table.name}.tensor", table.tensor, table.rows * table.row_bytes
    frontend = contract.frontend
    yield "frontend.tokenizer_asset", frontend.tokenizer_asset, None
    if frontend.template_asset is not None:
        yield "frontend.template_asset", frontend.template_asset, None
