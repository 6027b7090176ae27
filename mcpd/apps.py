"""Finding the `Server` that a command line names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from mcpd.errors import SettingError
from mcpd.server.server import Server

_DEFAULTS: Final = ("server", "mcp", "app")
_OURS: Final = str(Path(__file__).parent)


def load_app(name: str) -> Server:
    """The server that *name* says: ``module:attribute`` or ``file.py:attribute``.

    Without an attribute it is the module's one `Server`, or of several the one called ``server``, ``mcp`` or ``app``.

    Raises:
      SettingError: no such file, module or attribute, an attribute that is no server, or a module that fails on import;
      the text
        says which, and where.
    """
    target, colon, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if not target or (colon and not attribute):
        raise SettingError(f"{name!r} is no application; write module:attribute or file.py:attribute")
    module = _load_file(Path(target)) if target.endswith(".py") else _load_module(target)
    if attribute:
        found: object = module
        for part in attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise SettingError(f"{target} has no {attribute!r}; {_offer(module)}") from None
        if not isinstance(found, Server):
            raise SettingError(f"{target}:{attribute} is a {type(found).__name__}, not a mcpd.Server; {_offer(module)}")
        return found
    servers = _servers(module)
    for default in _DEFAULTS:
        if default in servers:
            return servers[default]
    if len(set(map(id, servers.values()))) == 1:
        return next(iter(servers.values()))
    raise SettingError(f"Which server of {target}? Say {target}:NAME; {_offer(module)}")


def _servers(module: ModuleType) -> dict[str, Server]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


def _offer(module: ModuleType) -> str:
    names = ", ".join(_servers(module))
    return f"its servers are: {names}" if names else "it has no mcpd.Server"


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SettingError(f"There is no file {str(path)!r}")
    # As `python file.py` has it: what stands beside the file can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"{str(path)!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        raise SettingError(f"{str(path)!r} cannot be imported: {_where(exc)}") from exc
    return module


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise SettingError(f"{name!r} is no module; an application is module:attribute or file.py:attribute")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            wanted = "" if exc.name == name else f" to find {name!r} in"
            raise SettingError(f"There is no module {exc.name!r}{wanted}; is it installed, or in this folder?") from exc
        raise SettingError(f"Module {name!r} cannot be imported: {_where(exc)}") from exc
    except (Exception, SystemExit) as exc:
        raise SettingError(f"Module {name!r} cannot be imported: {_where(exc)}") from exc


def _where(exc: BaseException) -> str:
    text = f"{type(exc).__name__}: {exc}".splitlines()[0]
    if isinstance(exc, SyntaxError):
        return text
    frames = traceback.extract_tb(exc.__traceback__)
    # Where the application stands: it may be we who raised it, over what is written there.
    here = [frame for frame in frames if "importlib" not in frame.filename and not frame.filename.startswith(_OURS)]
    return f"{text} ({here[-1].filename}, line {here[-1].lineno})" if here else text
