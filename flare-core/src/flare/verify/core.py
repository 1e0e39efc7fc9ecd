"""All checks of one core, in order: each needs what the ones before it established."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from flare.contract import OperatorList, PreparedContract
from flare.corefile import CoreReader, check_references, core_digest, parse_contract
from flare.device import LoadOptions, load_device
from flare.device.base import Device
from flare.errors import CoreError, FlareError
from flare.verify.identity import check_identity, conditions, differing
from flare.verify.oracle import check_oracle
from flare.verify.report import Check, Outcome, Report

NAMES = ("container", "contract", "identity", "checksums", "references", "load", "oracle")
"""The checks, in order."""

OnCheck = Callable[[Check], None]
Value = TypeVar("Value")


class Failed(Exception):
    """A check failed; it is in the report."""


class Verification:
    """Checks the core at `path`; `on_check` hears of each check as it is done.

    `device` is the loaded core once it was loaded, for whoever goes on to serve it; `close` releases it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        options: LoadOptions | None = None,
        on_check: OnCheck | None = None,
    ) -> None:
        self.device: Device | None = None
        self._path = os.fspath(path)
        self._options = options or LoadOptions()
        self._on_check = on_check
        self._checks: list[Check] = []

    def run(self) -> Report:
        """Everything. Raises nothing for a bad core; OSError for a file that cannot be read."""
        try:
            with self._step("container", lambda: CoreReader(self._path), _container) as reader:
                self._check_file(reader)
        except Failed:
            pass
        done = {check.name for check in self._checks}
        for name in NAMES:
            if name not in done:
                self._add(Check(name, Outcome.SKIPPED, "not reached"))
        return Report(self._path, tuple(self._checks))

    def close(self) -> None:
        """Release the device."""
        if self.device is not None:
            self.device.close()
            self.device = None

    def _check_file(self, reader: CoreReader) -> None:
        contract = self._step("contract", lambda: parse_contract(reader), _contract)
        runs_here = self._try(
            "identity", lambda: check_identity(contract.identity), lambda _: _identity(contract)
        )
        damaged = reader.verify(threads=self._options.threads)
        nbytes = sum(spec.nbytes for spec in reader.tensors.values())
        if damaged:
            named = ", ".join(damaged[:5]) + (f" and {len(damaged) - 5} more" if len(damaged) > 5 else "")
            self._add(Check("checksums", Outcome.FAILED, f"damaged: {named}", field=damaged[0]))
        else:
            self._add(Check("checksums", Outcome.PASSED, f"{len(reader.tensors)} tensors, {nbytes} bytes"))
        closed = self._try("references", lambda: _check_closed(contract, reader), _references)
        if not runs_here or damaged or not closed:
            return
        self.device = self._step("load", lambda: load_device(contract, reader, self._options), _loaded)
        self._add(check_oracle(self.device))

    def _step(self, name: str, work: Callable[[], Value], describe: Callable[[Value], str]) -> Value:
        """Do `work` as check `name`. Raises Failed after reporting."""
        try:
            value = work()
        except FlareError as error:
            self._add(Check(name, Outcome.FAILED, self._without_path(error), field=error.field))
            raise Failed from error
        self._add(Check(name, Outcome.PASSED, describe(value)))
        return value

    def _try(self, name: str, work: Callable[[], Value], describe: Callable[[Value], str]) -> bool:
        """`_step` whose failure lets later checks go on."""
        try:
            self._step(name, work, describe)
        except Failed:
            return False
        return True

    def _without_path(self, error: FlareError) -> str:
        return str(error).removeprefix(f"{self._path}: ")

    def _add(self, check: Check) -> None:
        self._checks.append(check)
        if self._on_check is not None:
            self._on_check(check)


def load_verified(path: str, options: LoadOptions) -> Device:
    """A loader for the engine process (`flare.engine.loading.VERIFYING_LOADER`).

    The device that it returns passed every check, the oracle on the very memory that will serve: nothing is
    loaded twice, and nothing is loaded again behind the check. Lines go to standard error.

    Raises VerificationError naming the first check that failed.
    """
    verification = Verification(
        path, options=options, on_check=lambda check: print(f"flare verify: {check.line}", file=sys.stderr)
    )
    report = verification.run()
    try:
        report.require()
    except FlareError:
        verification.close()
        raise
    assert verification.device is not None, "a report without failures loaded the core"
    return verification.device


def _check_closed(contract: PreparedContract, reader: CoreReader) -> PreparedContract:
    check_references(contract, reader.tensors)
    buffers = {buffer.name: buffer.nbytes for buffer in contract.buffers if buffer.rank == 0}
    for program in contract.programs:
        for payload in program.payloads:
            if payload.format != "oplist":
                continue
            field = f"programs.{program.name}"
            try:
                listing = OperatorList.model_validate_json(bytes(reader.bytes(payload.tensor)))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise CoreError(f"program {program.name}: {first}", field=field) from error
            for view in listing.views:
                if view.end > buffers.get(view.buffer, -1):
                    raise CoreError(
                        f"program {program.name}: a view of {view.buffer!r} lies outside the buffers",
                        field=field,
                    )
    return contract


def _container(reader: CoreReader) -> str:
    return f"content {core_digest(reader)}"


def _contract(contract: PreparedContract) -> str:
    return f"format {contract.identity.format_version}, {len(contract.programs)} programs"


def _identity(contract: PreparedContract) -> str:
    identity = contract.identity
    parts = [f"{identity.device}, fingerprint {identity.fingerprint[:16]}"]
    if library := identity.operator_library:
        parts.append(f"{library.distribution} >={library.minimum},<{library.below}")
    parts += differing(contract, conditions(contract))
    return ", ".join(parts)


def _references(contract: PreparedContract) -> str:
    return (
        f"{len(contract.buffers)} buffers, pages of {contract.page.page_tokens} tokens in "
        f"{contract.page.nbytes} bytes, rows of {contract.row.nbytes} bytes"
    )


def _loaded(device: Device) -> str:
    return f"{sum(device.ledger.values())} bytes on the device"
