"""`flare run`: serve a core over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flare.cli import server_options as so
from flare.cli.app import app, reports_errors
from flare.cli.cache_options import (
    CacheTokensOption,
    DiskCacheOption,
    DiskCacheSizeOption,
    GpuMemoryUtilizationOption,
    HostCacheOption,
    SnapshotRowsOption,
    store_options,
)
from flare.errors import CoreError

if TYPE_CHECKING:
    import asyncio

    from flare.engine.client import EngineOptions, ProcessEngineClient
    from flare.engine.supervisor import EngineSupervisor
    from flare.server import ServerSettings


@app.command()
@reports_errors
def run(
    core: Annotated[Path, typer.Argument(help="A core file made by `flare prepare`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one, which the ready line names.")
    ] = 8000,
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name of the API.", show_default="the file's name")
    ] = None,
    zero_temperature: so.ZeroTemperatureOption = so.ZeroTemperature.REJECT,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads of a CPU core.", show_default="all cores")
    ] = None,
    cache_tokens: CacheTokensOption = None,
    snapshot_rows: SnapshotRowsOption = None,
    gpu_memory_utilization: GpuMemoryUtilizationOption = None,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Requests that may wait for admission; one more gets 503.")
    ] = 256,
    inter_token_ms: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Longest pause of a running stream while another prompt is prefilled.",
            show_default="2.75 decode steps, but 25 if they are shorter",
        ),
    ] = None,
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--prefix-caching/--no-prefix-caching", help="Keep checkpoints of prompts and continue from them."
        ),
    ] = True,
    host_cache: HostCacheOption = None,
    disk_cache: DiskCacheOption = None,
    disk_cache_size: DiskCacheSizeOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the core as `flare verify` does before the port opens.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start the engine process again when it dies.")
    ] = False,
    api_key: so.ApiKeyOption = None,
    api_key_file: so.ApiKeyFileOption = None,
    cors_origin: so.CorsOriginOption = None,
    allowed_media_domains: so.MediaDomainsOption = None,
    max_body_mib: so.MaxBodyOption = 32,
    max_connections: so.MaxConnectionsOption = 512,
    request_timeout: so.RequestTimeoutOption = None,
    io_timeout: so.IoTimeoutOption = 60.0,
    stream_keep_alive: so.StreamKeepAliveOption = 10.0,
    debug_endpoints: so.DebugEndpointsOption = False,
    log_format: so.LogFormatOption = so.LogFormat.TEXT,
    log_level: so.LogLevelOption = so.LogLevel.INFO,
) -> None:
    """Serve a runtime core: OpenAI-compatible HTTP on loopback unless told otherwise."""
    import asyncio

    from flare.device.options import LoadOptions
    from flare.engine.client import EngineOptions
    from flare.engine.loading import DEFAULT_LOADER, VERIFYING_LOADER
    from flare.scheduler import Settings

    def settings() -> ServerSettings:
        from flare.server import configure_logging

        configure_logging(log_format.value, log_level.value)
        return so.server_settings(
            zero_temperature,
            api_key,
            api_key_file,
            cors_origin,
            allowed_media_domains,
            max_body_mib,
            max_connections,
            request_timeout,
            io_timeout,
            stream_keep_alive,
            debug_endpoints,
        )

    name = served_model_name or core.name.removesuffix(".safetensors").removesuffix(".core")
    options = EngineOptions(
        settings=Settings(
            max_waiting=max_waiting, inter_token_ms=inter_token_ms, prefix_caching=prefix_caching
        ),
        stores=store_options(host_cache, disk_cache, disk_cache_size),
        load=LoadOptions(threads, cache_tokens, snapshot_rows, gpu_memory_utilization),
        loader=VERIFYING_LOADER if verify else DEFAULT_LOADER,
    )
    asyncio.run(_serve(core, name, host, port, options, settings, restart))


async def _serve(
    core: Path,
    name: str,
    host: str,
    port: int,
    options: EngineOptions,
    make_settings: Callable[[], ServerSettings],
    restart: bool,
) -> None:
    import asyncio
    import gc
    import logging
    import time

    started = time.monotonic()
    # The engine process starts first: it loads while this one imports the server and reads the frontend.
    from flare.engine.client import ProcessEngineClient
    from flare.engine.load_lines import load_lines
    from flare.engine.loading import VERIFYING_LOADER
    from flare.engine.supervisor import EngineSupervisor

    if not core.is_file():
        raise CoreError(
            f"{core} is not a file"
            if core.exists()
            else f"{core} does not exist; `flare prepare NAME` makes a core",
            field="core",
        )
    client: ProcessEngineClient | EngineSupervisor
    if restart:
        client = EngineSupervisor(lambda: ProcessEngineClient(core, options))
    else:
        client = ProcessEngineClient(core, options)
    try:
        from flare.corefile import CoreReader, core_digest, read_contract
        from flare.frontend import FrontendAssets
        from flare.server import CoreIdentity, create_app, listen, notify, serve

        settings = make_settings()
        with CoreReader(core) as reader:
            contract = read_contract(reader)
            frontend = contract.frontend
            identity = CoreIdentity(digest=core_digest(reader), format=contract.identity.format_version)
            assets = FrontendAssets(
                frontend,
                bytes(reader.load(frontend.tokenizer_asset)),
                None
                if frontend.template_asset is None
                else bytes(reader.load(frontend.template_asset)).decode(),
            )
        application = create_app(
            model_name=name, assets=assets, engine=client, settings=settings, core=identity
        )
        # What is loaded now lives as long as the server; collecting it again would only delay tokens.
        gc.collect()
        gc.freeze()
        stop = asyncio.Event()
        if options.loader == VERIFYING_LOADER and not await _verified(client):
            return
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
            for line in load_lines(ready.result()):
                logging.getLogger("flare.engine").info(line)
            notify("READY=1")
        elif ready.done():
            stop.set()
        else:
            ready.cancel()
        if isinstance(client, EngineSupervisor):
            await _until_abandoned(client, server, stop)
        await server
        if ready.done() and not ready.cancelled():
            ready.result()
    finally:
        await client.shutdown()


async def _verified(client: ProcessEngineClient | EngineSupervisor) -> bool:
    """Wait for an engine that verifies its core: no port is open yet. False when SIGTERM came first."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    ready = loop.create_task(client.wait_ready())
    loop.add_signal_handler(signal.SIGTERM, ready.cancel)
    try:
        await ready
    except asyncio.CancelledError:
        return False
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    return True


async def _until_abandoned(client: EngineSupervisor, server: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Return when the server ends. When the engine is started no more the server ends too, and the exit
    status tells whoever supervises this process: raises the supervisor's ExecutionError."""
    import asyncio

    abandoned = asyncio.create_task(client.wait_abandoned())
    await asyncio.wait({server, abandoned}, return_when=asyncio.FIRST_COMPLETED)
    if not abandoned.done():
        abandoned.cancel()
        return
    stop.set()
    await server
    raise abandoned.result()
