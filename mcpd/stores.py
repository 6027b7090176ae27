"""Finding a store by its name: the entry points of the group ``mcpd.stores``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from mcpd.errors import SettingError, StoreError

if TYPE_CHECKING:
    from mcpd.ports import Store

GROUP: Final = "mcpd.stores"


def open_store(url: str) -> Store:
    """The store that *url* names: ``memory``, or ``name:...`` as the store itself reads it. No I/O happens yet.

    Raises:
      SettingError: there is no such store, or it refuses the URL; the text says which there are.
    """
    scheme = url.partition(":")[0].lower()
    found = entry_points(group=GROUP)
    try:
        entry = found[scheme]
    except KeyError:
        known = ", ".join(sorted(found.names)) or f"none: nothing is installed under the entry point group {GROUP!r}"
        raise SettingError(f"There is no store {scheme!r}; known are {known}") from None
    try:
        factory: Any = entry.load()
        store: Store = factory(url)
    except ImportError as exc:
        raise SettingError(f"The store {scheme!r} cannot be loaded: {exc}") from exc
    except StoreError as exc:
        raise SettingError(str(exc)) from exc
    return store
