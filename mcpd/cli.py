"""The command ``mcpd``: arguments to settings, store, server and front. A mistake is one line and exit status 2."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import sys
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import click
import msgspec
import trio

from mcpd import collector
from mcpd.apps import load_app
from mcpd.errors import SettingError, StoreError, only
from mcpd.fronts.http import metrics_host, new_endpoint, serve
from mcpd.fronts.sockets import LISTENER, METRICS_LISTENER, bind, bound, url
from mcpd.fronts.stdio import serve_stdio, take_stdout
from mcpd.fronts.workers import FOLDER, Workers, parent_gone
from mcpd.logs import set_up_logs
from mcpd.memory import worker_limit
from mcpd.operate import redis_option, sessions_command, store_url
from mcpd.protocol.revisions import LATEST
from mcpd.settings import Settings
from mcpd.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mcpd.server.server import Server

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB|KB|MB|GB|K|M|G)?", re.IGNORECASE)
_BYTES: Final = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_STOP: Final = (signal.SIGTERM, signal.SIGINT)


class Duration(click.ParamType[float]):
    """Seconds, as ``90``, ``90s``, ``1.5m``, ``30m``, ``2h`` or ``250ms``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write 90s, 30m or 2h", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or "s"]


class Size(click.ParamType[int]):
    """Bytes, as ``4194304``, ``4MiB`` or ``512KiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is no size; write 4MiB or 512KiB", param, ctx)
        return int(match[1]) * _BYTES[(match[2] or "b").lower().replace("ib", "")]


class Names(click.ParamType[str]):
    """Names, separated by commas; the flag may also be repeated."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """One or several names."""
        return str(value)


def _setting_options() -> Iterator[Callable[[Any], Any]]:
    hints = get_type_hints(Settings, include_extras=True)
    for field in reversed(msgspec.structs.fields(Settings)):
        if field.name in _ENVIRONMENT_ONLY:
            continue
        hint = hints[field.name]
        kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        description = cast("msgspec.Meta", meta).description
        flag = "--" + field.name.replace("_", "-")
        options: dict[str, Any] = {"help": description, "envvar": f"MCPD_{field.name.upper()}", "show_envvar": True}
        if kind is bool:
            declaration = f"{flag}/--no-{flag[2:]}"
            options["default"] = field.default
            options["show_default"] = True
        elif get_origin(kind) is tuple:
            declaration = flag
            options |= {"type": Names(), "multiple": True}
        else:
            declaration = flag
            options |= {"default": field.default, "show_default": _shown(field.name, field.default) or False}
            if get_origin(kind) is Literal:
                options["type"] = click.Choice(get_args(kind))
            else:
                options["type"] = Duration() if kind is float else Size() if field.name in _SIZES else kind
        yield click.option(declaration, field.name, **options)


_SIZES: Final = frozenset({"max_body", "max_buffer", "max_task_size", "memory_limit"})
_ENVIRONMENT_ONLY: Final = ("auth_introspection_client_secret",)
"""Secrets: whoever may list processes can read arguments."""
_LISTS: Final = tuple(name for name, hint in get_type_hints(Settings).items() if get_origin(hint) is tuple)


def _shown(name: str, value: object) -> str:
    if isinstance(value, float):
        return duration(value)
    return f"{value // 1024**2}MiB" if name in _SIZES and isinstance(value, int) and value else str(value)


def duration(seconds: float) -> str:
    """Seconds as people write them: ``30m``."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"


def _with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in _setting_options():
        command = option(command)
    return command


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it
    if value:
        click.echo(f"mcpd {version('trio-mcpd')}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
def cli() -> None:
    """mcpd, the application server for MCP."""


cli.add_command(sessions_command)


@cli.command("serve")
@click.argument("app", required=False, envvar="MCPD_APP")
@_with_settings
@redis_option
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    envvar="MCPD_WORKERS",
    help="How many processes serve the port; more than one needs a store that processes share.",
)
@click.option("--stdio", is_flag=True, envvar="MCPD_STDIO", help="Serve standard input and output instead of HTTP.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
    envvar="MCPD_LOG_LEVEL",
    help="What to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="MCPD_LOG_FORMAT",
    help="How a line of the log looks.",
)
def serve_command(
    app: str | None, *, redis_url: str, workers: int, stdio: bool, log_level: str, log_format: Any, **options: Any
) -> None:
    """Serve APP, which is module:attribute or file.py[:attribute]; without APP a small server to try."""
    set_up_logs(log_level, log_format)
    for name in _ENVIRONMENT_ONLY:
        options[name] = os.environ.get(f"MCPD_{name.upper()}", "")
    for name in _LISTS:
        options[name] = tuple(part.strip() for given in options[name] for part in given.split(",") if part.strip())
    options["store"] = store_url(options["store"], redis_url)
    settings = Settings(**options)
    if stdio:
        out = take_stdout()  # before the application is loaded, which may print
        trio.run(_serve_stdio, _load(app), settings, out)
        return
    server = _load(app)
    if workers > 1:
        if FOLDER not in os.environ:
            sys.exit(_serve_workers(workers, server, settings))
        settings = msgspec.structs.replace(settings, memory_limit=worker_limit(settings.memory_limit, workers))
    trio.run(_serve_http, server, settings)


def _serve_workers(number: int, server: Server, settings: Settings) -> int:
    store = open_store(settings.store)
    if not store.shared:
        raise SettingError(
            f"{number} workers need a store that processes share, such as --store redis: "
            f"what one keeps in {store.name} is unknown to the others"
        )
    if not settings.state_keys:
        # Whichever worker is asked next must be able to open what another one has sealed.
        os.environ["MCPD_STATE_KEYS"] = key = secrets.token_hex(32)
        settings = msgspec.structs.replace(settings, state_keys=(key,))
    # What none of them could work with is said once, here, and not by each.
    trio.run(_try_out, server, settings)
    with ExitStack() as stack:
        sockets = {LISTENER: stack.enter_context(bound(settings))}
        if settings.metrics and settings.metrics_port:
            listener = bind(metrics_host(settings), settings.metrics_port)
            sockets[METRICS_LISTENER] = stack.enter_context(listener)
        where = url(sockets[LISTENER], settings)
        started = partial(_say, server, settings, where, f"{number} workers, ")
        return trio.run(Workers(number, sys.argv[1:], sockets).run, started)


async def _try_out(server: Server, settings: Settings) -> None:
    endpoint = new_endpoint(server, settings.store, settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.store.run)
        nursery.cancel_scope.cancel()


def _say(server: Server, settings: Settings, where: str, also: str = "") -> None:
    store = open_store(settings.store).name  # without credentials
    limits = f"idle {duration(settings.session_idle)}, at most {settings.max_sessions} sessions"
    click.echo(
        f"mcpd {version('trio-mcpd')} serves {server.info.name} at {where} ({also}store {store}, {limits})", err=True
    )


def _options(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if name != "store"}


async def _serve_stdio(server: Server, settings: Settings, out: trio.lowlevel.FdStream) -> None:
    with trio.open_signal_receiver(*_STOP) as signals:

        async def stop() -> None:
            await anext(signals)

        await serve_stdio(server, sender=out, store=settings.store, stop=stop, **_options(settings))


async def _serve_http(server: Server, settings: Settings) -> None:
    with trio.open_signal_receiver(*_STOP) as signals:

        async def hear(scope: trio.CancelScope) -> None:
            number = await anext(signals)
            logging.getLogger("mcpd").info("%s: draining", signal.Signals(number).name)
            scope.cancel()

        async def stop() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hear, nursery.cancel_scope)
                await parent_gone()
                logging.getLogger("mcpd").warning("The process that started this worker is gone: draining")
                nursery.cancel_scope.cancel()

        async def at_once() -> None:
            # The second signal does what it does to a program that does not listen.
            async for number in signals:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        async def stop_then_listen() -> None:
            await stop()
            nursery.start_soon(at_once)

        async with trio.open_nursery() as nursery:
            where = await nursery.start(
                partial(
                    _run_and_leave, nursery, server, store=settings.store, stop=stop_then_listen, **_options(settings)
                )
            )
            collector.settle()
            if FOLDER not in os.environ:
                _say(server, settings, where)


async def _run_and_leave(
    nursery: trio.Nursery,
    server: Server,
    *,
    task_status: trio.TaskStatus[str],
    stop: Callable[[], Awaitable[object]],
    **options: Any,
) -> None:
    await serve(server, stop=stop, task_status=task_status, **options)
    nursery.cancel_scope.cancel()


@cli.command("inspect")
@click.argument("app", required=False, envvar="MCPD_APP")
@click.option("--json", "as_json", is_flag=True, help="The lists as JSON, as a modern client gets them.")
def inspect_command(app: str | None, *, as_json: bool) -> None:
    """Show what APP would offer."""
    server = _load(app)
    offers: dict[str, list[Any]] = {
        "tools": [entry.describe(LATEST) for entry in server.tools],
        "resources": [entry.describe(LATEST) for entry in server.resources],
        "resourceTemplates": [entry.describe(LATEST) for entry in server.templates],
        "prompts": [entry.describe(LATEST) for entry in server.prompts],
    }
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"serverInfo": server.info} | offers)).decode())
        return
    click.echo(f"{server.info.name} {server.info.version}")
    for kind, items in offers.items():
        click.echo(f"\n{kind}: {len(items) or 'none'}")
        for item in items:
            click.echo(f"  {_one_line(msgspec.to_builtins(item))}")


def _one_line(item: dict[str, Any]) -> str:
    name = item.get("uri") or item.get("uriTemplate") or item["name"]
    if "inputSchema" in item:
        needed = item["inputSchema"].get("required", [])
        parameters = (key if key in needed else f"{key}?" for key in item["inputSchema"].get("properties", {}))
        name += f"({', '.join(parameters)})"
    elif "arguments" in item:
        name += f"({', '.join(a['name'] if a.get('required') else a['name'] + '?' for a in item['arguments'])})"
    summary = (item.get("description") or "").strip().partition("\n")[0]
    return f"{name}  {summary}".rstrip()


def _load(app: str | None) -> Server:
    if app is None:
        from mcpd.demo import server  # noqa: PLC0415 - only who asks for nothing else gets it

        return server
    return load_app(app)


def main() -> None:
    """Run the command line and exit: 0 when all went well, 2 for a mistake of who called it."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as exc:
        _fail(exc.format_message())
    except (SettingError, StoreError) as exc:
        _fail(str(exc))
    except Exception as exc:
        mistake = only(exc)
        if isinstance(mistake, SettingError | StoreError):
            _fail(str(mistake))
        # Python's own traceback would be in nobody's log, nor in its format.
        logging.getLogger("mcpd").critical("mcpd has failed, and stops", exc_info=True)
        sys.exit(1)


def _fail(message: str) -> None:
    click.echo(f"mcpd: {' '.join(message.split())}", err=True)
    sys.exit(2)
