"""`flare run`: serve a core over HTTP."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flare.cli.app import app, reports_errors
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.engine.client import EngineOptions


class ZeroTemperature(StrEnum):
    """What a request with temperature 0 gets."""

    REJECT = "reject"
    CLAMP = "clamp"


@app.command()
@reports_errors
def run(
    core: Annotated[Path, typer.Argument(help="A core file made by `flare prepare`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name of the API; default: the file's name.")
    ] = None,
    zero_temperature: Annotated[
        ZeroTemperature,
        typer.Option(help="Temperature 0: refuse, or take the smallest allowed temperature."),
    ] = ZeroTemperature.REJECT,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads of a CPU core; default: all cores.")
    ] = None,
    max_waiting: Annotated[int, typer.Option(min=1, help="Requests that may wait for admission.")] = 256,
    inter_token_ms: Annotated[
        float,
        typer.Option(min=1, help="Longest pause of a running stream while another prompt is prefilled."),
    ] = 150.0,
) -> None:
    """Serve a runtime core: OpenAI-compatible HTTP on loopback unless told otherwise."""
    import asyncio
    import logging

    from flare.engine.client import EngineOptions
    from flare.scheduler import Settings

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    name = served_model_name or core.name.removesuffix(".safetensors").removesuffix(".core")
    options = EngineOptions(
        settings=Settings(max_waiting=max_waiting, inter_token_ms=inter_token_ms), threads=threads
    )
    asyncio.run(_serve(core, name, host, port, options, zero_temperature))


async def _serve(
    core: Path, name: str, host: str, port: int, options: EngineOptions, zero_temperature: ZeroTemperature
) -> None:
    import asyncio
    import gc
    import time

    started = time.monotonic()
    # The engine process starts first: it loads while this one imports the server and reads the frontend.
    from flare.engine.client import ProcessEngineClient

    if not core.is_file():
        raise CoreError(
            f"{core} is not a file"
            if core.exists()
            else f"{core} does not exist; `flare prepare NAME` makes a core",
            field="core",
        )
    client = ProcessEngineClient(core, options)
    try:
        from flare.corefile import CoreReader, read_contract
        from flare.frontend import FrontendAssets
        from flare.server import ServerSettings, create_app, listen, serve

        with CoreReader(core) as reader:
            frontend = read_contract(reader).frontend
            assets = FrontendAssets(
                frontend,
                bytes(reader.load(frontend.tokenizer_asset)),
                None
                if frontend.template_asset is None
                else bytes(reader.load(frontend.template_asset)).decode(),
            )
        settings = ServerSettings(zero_temperature=zero_temperature.value)
        application = create_app(model_name=name, assets=assets, engine=client, settings=settings)
        # What is loaded now lives as long as the server; collecting it again would only delay tokens.
        gc.collect()
        gc.freeze()
        stop = asyncio.Event()
        socket = listen(host, port)
        server = asyncio.create_task(serve(application, sock=socket, stop=stop))
        ready = asyncio.create_task(client.wait_ready())
        await asyncio.wait({server, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and ready.exception() is None:
            bound, number = socket.getsockname()[:2]
            address = f"[{bound}]" if ":" in bound else bound
            typer.echo(
                f"flare: {name} ready on http://{address}:{number} in {time.monotonic() - started:.1f} s"
            )
        elif ready.done():
            stop.set()
        else:
            ready.cancel()
        await server
        if ready.done() and not ready.cancelled():
            ready.result()
    finally:
        await client.shutdown()
