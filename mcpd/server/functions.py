"""A Python function taken apart: its parameters, its Context, its docstring, and whether it can be served at all."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any


class SignatureError(TypeError):
    """A function cannot be served; the message says which, the parameter, why, and the way out."""


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function taken apart.

    Attributes:
      name: its own, or the one given instead.
      module: where it is defined.
      docstring: as written.
      parameters: in order, each annotation resolved; without the Context, and without what a `functools.partial` fixes.
      context: the parameter that takes the Context.
      context_index: its place among the positional ones; `None` if it is keyword-only, or there is none.
      returns: the return annotation, resolved; `inspect.Signature.empty` if there is none.
      is_async: it is a coroutine function, or wraps one.
    """

    name: str
    module: str
    docstring: str | None
    parameters: tuple[inspect.Parameter, ...]
    context: inspect.Parameter | None
    context_index: int | None
    returns: Any
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any], context_type: type, name: str | None) -> "Function":
        """Take a function apart.

        Raises:
          SignatureError: it is of a kind that cannot be served.
        """
        own_name = _name(function, name)
        underlying = _underlying(function, own_name)
        innermost = inspect.unwrap(underlying)
        if inspect.isgeneratorfunction(innermost) or inspect.isasyncgenfunction(innermost):
            raise SignatureError(
                f"{own_name}(): is a generator, and a result is sent whole; return a list, and report on the way with "
                "ctx.progress()"
            )
        try:
            hints = typing.get_type_hints(underlying, include_extras=True)
        except Exception as exc:
            raise SignatureError(
                f"{own_name}(): an annotation cannot be resolved: {first_line(exc)}; what it names must be importable "
                "from the function's module at run time, so not local to a function nor under `if TYPE_CHECKING:`"
            ) from exc
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as exc:
            raise SignatureError(
                f"{own_name}(): has no signature Python can read; wrap it in a function with one"
            ) from exc
        bound = function.keywords if isinstance(function, functools.partial) else {}
        taken: list[inspect.Parameter] = []
        contexts: list[tuple[inspect.Parameter, int]] = []
        for each in parameters:
            if each.name in bound:
                continue
            _check_kind(own_name, each)
            if each.name not in hints:
                raise SignatureError(
                    f"{own_name}(): parameter {each.name!r} has no annotation; write `{each.name}: str`, or "
                    "whatever it takes (`typing.Any` for anything)"
                )
            parameter = each.replace(annotation=hints[each.name])
            if _is_context(parameter.annotation, context_type):
                contexts.append((parameter, len(taken)))
            else:
                taken.append(parameter)
        if len(contexts) > 1:
            names = " and ".join(repr(each.name) for each, _ in contexts)
            raise SignatureError(f"{own_name}(): parameters {names} both ask for the Context; keep one")
        context, index = contexts[0] if contexts else (None, 0)
        return cls(
            name=own_name,
            module=getattr(innermost, "__module__", None) or __name__,
            docstring=_docstring(underlying),
            parameters=tuple(taken),
            context=context,
            context_index=index if context and context.kind is context.POSITIONAL_OR_KEYWORD else None,
            returns=hints.get("return", inspect.Signature.empty),
            is_async=inspect.iscoroutinefunction(underlying) or inspect.iscoroutinefunction(innermost),
        )


def _name(function: Any, name: str | None) -> str:
    if name is not None:
        return name
    while isinstance(function, functools.partial):
        function = function.func
    found: str = getattr(function, "__name__", None) or type(function).__name__
    if found == "<lambda>":
        raise SignatureError("a lambda has no name; use def, or give it one with name=")
    return found


def _underlying(function: Any, name: str) -> Any:
    """Find the function or method that has the annotations."""
    if isinstance(function, type):
        raise SignatureError(f"{name}: is a class, not a function; write a function that makes and uses one")
    while isinstance(function, functools.partial | staticmethod):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if not callable(function):
        raise SignatureError(f"{name}: {type(function).__name__} object cannot be called; serve a function or a method")
    if inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        return function
    return function.__call__


def _docstring(underlying: Any) -> str | None:
    # Not inspect.getdoc: it would also find what a base class says of itself.
    found: str | None = underlying.__doc__
    if found is None and underlying.__name__ == "__call__":
        found = type(underlying.__self__).__doc__
    return found


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    why: Mapping[Any, str] = {
        parameter.POSITIONAL_ONLY: "is positional-only, and arguments come by name; remove the `/`",
        parameter.VAR_POSITIONAL: "takes any number of arguments, and arguments come by name; take a `list` instead",
        parameter.VAR_KEYWORD: "takes any name, which no schema can show; take a `dict` instead, or use input_schema=",
    }
    if parameter.kind in why:
        raise SignatureError(f"{name}(): parameter {str(parameter).partition(':')[0]!r} {why[parameter.kind]}")


def _is_context(annotation: Any, context_type: type) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_context(typing.get_args(annotation)[0], context_type)
    if isinstance(origin, type) and issubclass(origin, context_type):
        return True
    if isinstance(annotation, type):
        return issubclass(annotation, context_type)
    return origin in (typing.Union, types.UnionType) and any(
        _is_context(each, context_type) for each in typing.get_args(annotation)
    )


def first_line(exc: BaseException) -> str:
    """Cut what a library says to what fits into a sentence."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
