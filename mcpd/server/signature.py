"""From a Python function to what a client is shown, and what calls it.

A function's parameters become the fields of one msgspec Struct, made once, when the function is registered. Its
decoder checks and converts the arguments of a call; its JSON Schema is the tool's `inputSchema`. What cannot be served
is refused here, by name, and not at the first call.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from mcpd.server.docstrings import document
from mcpd.server.explain import ExplainedError, explain
from mcpd.server.functions import Function, SignatureError, first_line
from mcpd.server.schema import Validator

__all__ = ["Parameter", "Signature", "SignatureError", "explain", "raw_signature_of", "signature_of"]

_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
# Defaults of these types can be handed to one call after another; every other default is copied for each call.
_IMMUTABLE: Final = (type(None), bool, int, float, str, bytes)

Call = Callable[[Any, Any], Any]
"""`call(arguments, context)`: what the function returns, a coroutine if it is async."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, as a prompt shows it."""

    name: str
    description: str | None
    required: bool


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What mcpd knows of a function.

    Attributes:
      name: the function's own name, or the one given instead.
      description: its docstring without the parameter section.
      parameters: in order, without the Context.
      input_schema: JSON Schema 2020-12 of the arguments, the root an object.
      returns: the return annotation, resolved; `inspect.Signature.empty` if there is none.
      is_async: it is a coroutine function, or wraps one: then what `call` returns may be a coroutine.
      context_name: the parameter that takes the Context.
      call: runs the function with decoded arguments and the Context.
      decode: reads the JSON of the arguments; raises `msgspec.ValidationError`, of which `explain` makes a sentence.
      from_strings: reads arguments that are all strings, as those of prompts and URI templates are: "3" serves for an
        int; raises like `decode`.
    """

    name: str
    description: str | None
    parameters: tuple[Parameter, ...]
    input_schema: dict[str, Any]
    returns: Any
    is_async: bool
    context_name: str | None
    call: Call
    decode: Callable[[bytes | msgspec.Raw], Any]
    from_strings: Callable[[Mapping[str, str]], Any]

    def explain(self, exc: msgspec.ValidationError, *, subject: str = "tool") -> str:
        """Say what is wrong with the arguments, for the model; `subject` as in "this tool takes: a, b"."""
        return explain(exc, self.input_schema, subject=subject)


def signature_of(function: Callable[..., Any], *, context_type: type, name: str | None = None) -> Signature:
    """Read a function, each parameter of which becomes a property of the arguments.

    Plain and async functions, bound methods, static methods, `functools.partial` (what it fixes is not shown, and
    cannot be changed by a call) and callable objects will do.

    Args:
      function: what to serve.
      context_type: a parameter annotated with it is given the Context, and is not shown.
      name: in place of the function's own.

    Raises:
      SignatureError: the function cannot be served.
    """
    plan = Function.of(function, context_type, name)
    documentation = document(plan.docstring)
    fields = [_field(plan, parameter) for parameter in plan.parameters]
    arguments = msgspec.defstruct(
        f"{plan.name}_arguments", fields, module=plan.module, kw_only=True, forbid_unknown_fields=True
    )
    input_schema = _input_schema(arguments)
    properties = input_schema["properties"]
    shown: list[Parameter] = []
    for parameter in plan.parameters:
        schema: dict[str, Any] = properties[parameter.name]
        described: str | None = (
            schema.get("description") or _plain_description(parameter) or documentation.parameters.get(parameter.name)
        )
        if described:
            schema["description"] = described
        schema.pop("default", None)
        if (default := _shown_default(parameter)) is not _HIDDEN:
            schema["default"] = default
        shown.append(Parameter(parameter.name, described or None, parameter.default is parameter.empty))
    return Signature(
        name=plan.name,
        description=documentation.description,
        parameters=tuple(shown),
        input_schema=input_schema,
        returns=plan.returns,
        is_async=plan.is_async,
        context_name=plan.context.name if plan.context else None,
        call=_call(function, plan),
        decode=msgspec.json.Decoder(arguments).decode,
        from_strings=functools.partial(msgspec.convert, type=arguments, strict=False),
    )


def raw_signature_of(
    function: Callable[..., Any], *, context_type: type, input_schema: dict[str, Any], name: str | None = None
) -> Signature:
    """Read a function that takes all its arguments as one, described by a schema written by hand.

    The one parameter, beside the Context, is annotated `dict[str, Any]`, or with a Struct, dataclass or TypedDict that
    the arguments are converted to once they have passed the schema. The parameters shown are the schema's properties.

    Args:
      function: as for `signature_of`.
      context_type: as for `signature_of`.
      input_schema: shown to clients as it is; pass it through `schema.check_schema` first.
      name: in place of the function's own.

    Raises:
      SignatureError: the function cannot be served.
    """
    plan = Function.of(function, context_type, name)
    if len(plan.parameters) != 1:
        raise SignatureError(
            f"{plan.name}(): with input_schema= it takes one parameter for all the arguments (and a Context if it "
            f"wants), such as `arguments: dict[str, Any]`; it has {len(plan.parameters)}"
        )
    (parameter,) = plan.parameters
    kind = parameter.annotation
    _check_type(plan, parameter)
    if not _takes_object(kind):
        raise _refused(
            plan, parameter, f"{_type_name(kind)} cannot hold all the arguments", "annotate it `dict[str, Any]`"
        )
    validator = Validator(input_schema, what=f"input_schema of {plan.name}")

    def convert(arguments: Any) -> Any:
        if (wrong := validator.errors(arguments)) is not None:
            raise ExplainedError(wrong)
        return msgspec.convert(arguments, kind)

    properties: dict[str, dict[str, Any] | bool] = input_schema.get("properties", {})
    documentation = document(plan.docstring)
    context_name = plan.context.name if plan.context else None
    parameter_name = parameter.name

    def call(arguments: Any, context: Any) -> Any:
        if context_name is None:
            return function(**{parameter_name: arguments})
        return function(**{parameter_name: arguments, context_name: context})

    return Signature(
        name=plan.name,
        description=documentation.description,
        parameters=tuple(
            Parameter(
                each,
                None if isinstance(schema, bool) else schema.get("description"),
                each in input_schema.get("required", ()),
            )
            for each, schema in properties.items()
        ),
        input_schema=input_schema,
        returns=plan.returns,
        is_async=plan.is_async,
        context_name=context_name,
        call=call,
        decode=lambda arguments: convert(msgspec.json.decode(arguments)),
        from_strings=lambda arguments: convert(dict(arguments)),
    )


# --------------------------------------------------------------------------------------------- one parameter, one field


def _field(plan: Function, parameter: inspect.Parameter) -> tuple[str, Any, Any] | tuple[str, Any]:
    _check_pydantic(plan, parameter)
    _check_type(plan, parameter)
    default = parameter.default
    if default is parameter.empty:
        return parameter.name, parameter.annotation
    _check_default(plan, parameter)
    if type(default) in _IMMUTABLE:
        return parameter.name, parameter.annotation, default
    return (
        parameter.name,
        parameter.annotation,
        msgspec.field(default_factory=functools.partial(copy.deepcopy, default)),
    )


def _check_type(plan: Function, parameter: inspect.Parameter) -> None:
    """Have msgspec build everything for this parameter alone, so that the message can name it."""
    try:
        msgspec.json.schema(parameter.annotation)
        msgspec.json.Decoder(parameter.annotation)
    except Exception as exc:  # noqa: BLE001 (also what resolving the fields of a dataclass raises)
        reason = first_line(exc)
        if reason.startswith("Generating JSON schema for custom types"):
            reason = f"{_type_name(parameter.annotation)} has no form in JSON"
        raise _refused(
            plan,
            parameter,
            reason,
            "use builtin types, list, dict, Literal, Enum, msgspec.Struct, dataclass, TypedDict ..., or input_schema=",
        ) from None


def _check_default(plan: Function, parameter: inspect.Parameter) -> None:
    """Refuse what a client could not send: `x: int = None` would show a default that its own schema forbids."""
    encoded = _encode_default(parameter.default)
    if encoded is None:
        return
    try:
        msgspec.json.decode(encoded, type=parameter.annotation)
    except msgspec.ValidationError as exc:
        way_out = "add `| None` to the annotation" if parameter.default is None else "change one of the two"
        message = str(exc).replace("`", "")
        raise _refused(
            plan, parameter, f"its default {parameter.default!r} does not fit its annotation: {message}", way_out
        ) from None


def _check_pydantic(plan: Function, parameter: inspect.Parameter) -> None:
    """Refuse constraints that would silently not be checked."""
    extras: tuple[Any, ...] = getattr(parameter.annotation, "__metadata__", ())
    for each in (*extras, parameter.default):
        if type(each).__module__.partition(".")[0] in {"pydantic", "annotated_types"}:
            raise _refused(
                plan,
                parameter,
                f"{type(each).__name__} is for pydantic, and would not be checked",
                "use `Annotated[..., msgspec.Meta(description=..., ge=...)]` and a plain default",
            )


def _refused(plan: Function, parameter: inspect.Parameter, why: str, way_out: str) -> SignatureError:
    return SignatureError(f"{plan.name}(): parameter {parameter.name!r}: {why.rstrip('.')}; {way_out}")


def _takes_object(kind: Any) -> bool:
    if kind is Any:
        return True
    (root,), components = msgspec.json.schema_components([kind])
    if "$ref" in root:
        root = components[root["$ref"].rpartition("/")[2]]
    return root.get("type") == "object"


# ----------------------------------------------------------------------------------------------------------- the schema

_HIDDEN: Final = object()


def _input_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    body = components.pop(root["$ref"].removeprefix("#/$defs/"))
    schema: dict[str, Any] = {"type": "object", "properties": body["properties"]}
    if body["required"]:
        schema["required"] = body["required"]
    schema["additionalProperties"] = False
    if components:
        schema["$defs"] = components
    return schema


def _plain_description(parameter: inspect.Parameter) -> str | None:
    """Read the description in `Annotated[int, "how many"]`."""
    extras: tuple[Any, ...] = getattr(parameter.annotation, "__metadata__", ())
    return next((each for each in extras if isinstance(each, str)), None)


def _shown_default(parameter: inspect.Parameter) -> Any:
    encoded = None if parameter.default is parameter.empty else _encode_default(parameter.default)
    return _HIDDEN if encoded is None else msgspec.json.decode(encoded)


def _encode_default(default: Any) -> bytes | None:
    """Encode a default; `None` if it has no JSON, such as a sentinel or an infinite float."""
    try:
        encoded = msgspec.json.encode(default)
    except Exception:  # noqa: BLE001 (TypeError, OverflowError, or whatever the value's own code raises)
        return None
    return None if encoded == b"null" and default is not None else encoded


# ------------------------------------------------------------------------------------------------------------- the call


def _call(function: Callable[..., Any], plan: Function) -> Call:
    """Decide once how a call passes its arguments; a call then only unpacks a tuple.

    The fields of the Struct have the order of the parameters, so positional ones come first.
    """
    positional = sum(each.kind is _POSITIONAL for each in plan.parameters)
    keywords = tuple(each.name for each in plan.parameters[positional:])
    context, index = plan.context, plan.context_index

    if not keywords and context is None:
        return lambda arguments, _context: function(*astuple(arguments))
    if not keywords and index == 0:
        return lambda arguments, context: function(context, *astuple(arguments))
    context_name = context.name if context is not None and index is None else None

    def call(arguments: Any, context: Any) -> Any:
        values = astuple(arguments)
        by_name = dict(zip(keywords, values[positional:], strict=True))
        if context_name is not None:
            by_name[context_name] = context
        if index is None:
            return function(*values[:positional], **by_name)
        return function(*values[:index], context, *values[index:positional], **by_name)

    return call


# -------------------------------------------------------------------------------------------------------------- wording


def _type_name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
