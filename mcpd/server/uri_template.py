"""URI templates (RFC 6570), forwards and, above all, backwards: which values of the variables give this URI?

Every variable matches at least one character, and as many as it can, the leftmost first. What each expression takes:

| expression | example of a match | a value is |
| --- | --- | --- |
| `{x}` `{x,y}` | `a%20b` `a,b` | part of one path segment: no `/`, `?`, `#`; with several variables no `,` |
| `{+x}` | `a/b.txt` | anything, `/` included; no `?` if a `{?...}` follows |
| `{#x}` | `#a/b` | anything, after a `#` |
| `{.x}` `{/x}` `{;x}` | `.json` `/a` `;x=a` | like `{x}`, after its mark |
| `{/x*}` | `/a/b/c` | the whole path `a/b/c` |
| `{?x,y}` `{&x}` | `?y=1&x=2` | in any order; each may be missing; a name the template does not have is no match |

Values are percent-decoded as UTF-8. **They are safe as names, not yet as paths**: no value has a NUL, or is, or has
between slashes or backslashes, `.` or `..`, and only `{+x}`, `{#x}`, `{/x*}` and query values have a `/` at all, also
when it came as `%2F`; yet `{+x}` can begin with a `/`, so resolve it and look where it leads before opening a file.

Matching takes time linear in the length of the URI for each variable; no template and no URI makes it backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

MAX_URI_LENGTH: Final = 8192
"""Longer URIs, in characters, match no template."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_FORM: Final = ("?", "&")


class UriTemplateError(ValueError):
    """A template cannot be used; the message says where and why."""


class _Literal(NamedTuple):
    text: str


class _Variable(NamedTuple):
    name: str
    stops: str  # characters that end it in a URI
    slashes: bool  # whether its value may have a `/`
    reserved: bool  # whether reserved characters stand for themselves when it is expanded


_Part = _Literal | _Variable


class UriTemplate:
    """A URI template, or a plain URI, which is a template without variables.

    Args:
      template: begins with a scheme, as in `note://{name}`. Level 4 of RFC 6570 only as far as `{/x*}`: values are
      strings, and
        what `{x:3}` cuts off cannot be found again. `{?x}` and `{&x}` come last.

    Attributes:
      variables: their names, in order.

    Raises:
      UriTemplateError: it is malformed, or could not be matched.
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self._parts: list[_Part] = []
        self._form: list[str] = []  # the variables of {?...} and {&...}
        self._form_mark = ""  # what their part of a URI begins with
        if not _SCHEME.match(template):
            raise UriTemplateError(f"{template!r} must begin with a scheme, such as note:// or file:///")
        self._parse(template)
        self._start = self._parts[0][0]  # there is a literal: the scheme
        names = [part.name for part in self._parts if isinstance(part, _Variable)] + self._form
        for name in names:
            if names.count(name) > 1:
                raise UriTemplateError(f"{template!r} has the variable {name!r} twice")
        self.variables = tuple(names)

    def __str__(self) -> str:
        """Give the template as it was written."""
        return self._template

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._template!r})"

    def expand(self, values: Mapping[str, str]) -> str:
        """Make the URI of some values (RFC 6570 section 3).

        Variables of `{?...}` and `{&...}` may be left out.

        Raises:
          KeyError: another value is missing.
        """
        expanded = "".join(
            part.text
            if isinstance(part, _Literal)
            else quote(values[part.name], safe=(_RESERVED if part.reserved else "/" if part.slashes else ""))
            for part in self._parts
        )
        mark = self._form_mark
        for name in self._form:
            if name in values:
                expanded += f"{mark}{name}={quote(values[name], safe='')}"
                mark = "&"
        return expanded

    def match(self, uri: str) -> dict[str, str] | None:
        """Find the values that give a URI, or `None` if none do.

        Variables of `{?...}` and `{&...}` that the URI does not have are not in the answer.
        """
        if len(uri) > MAX_URI_LENGTH or _BAD_PERCENT.search(uri):
            return None
        uri = _encode_non_ascii(uri)
        if not uri.startswith(self._start):
            return None
        ends = self._ends(uri)
        if ends is None:
            return None
        raw: list[tuple[_Variable, str]] = []
        position = 0
        for part, possible in zip(self._parts, ends[1:], strict=True):
            if isinstance(part, _Literal):
                position += len(part.text)
            else:
                start, position = position, _longest(uri, position, part.stops, possible)
                raw.append((part, uri[start:position]))
        values: dict[str, str] = {}
        for variable, text in raw:
            value = _decode(text)
            if value is None or not _is_safe(value, slashes=variable.slashes):
                return None
            values[variable.name] = value
        return self._match_form(uri[position:], values)

    # ------------------------------------------------------------------------------------------------------ parsing

    def _parse(self, template: str) -> None:
        position = 0
        for expression in _EXPRESSION.finditer(template):
            self._add_literal(template[position : expression.start()])
            self._add_expression(expression[1])
            position = expression.end()
        self._add_literal(template[position:])
        if self._form_mark:
            # Or a variable before the query would swallow it.
            self._parts = [
                part._replace(stops=part.stops + self._form_mark) if isinstance(part, _Variable) else part
                for part in self._parts
            ]

    def _add_literal(self, text: str) -> None:
        if not text:
            return
        if "{" in text or "}" in text:
            raise UriTemplateError(f"{self._template!r} has a brace without its pair")
        if _BAD_PERCENT.search(text) or re.search(r'[\x00-\x20"<>\\^`|\x7f]', text):
            raise UriTemplateError(f"{self._template!r}: {text!r} has a character that no URI has; write it as %XX")
        if self._form_mark:
            raise UriTemplateError(f"{self._template!r}: {text!r} comes after a query expression, which must be last")
        self._parts.append(_Literal(_encode_non_ascii(text)))

    def _add_expression(self, expression: str) -> None:
        operator = expression[:1] if expression[:1] in "+#./;?&" else ""
        names = expression.removeprefix(operator).split(",")
        explode = operator == "/" and len(names) == 1 and names[0].endswith("*")
        for name in names:
            if not _VARIABLE.fullmatch(name.removesuffix("*") if explode else name):
                raise UriTemplateError(f"{self._template!r}: {self._hint(expression, name)}")
        if operator in _FORM and operator:
            if self._form_mark and operator == "?":
                raise UriTemplateError(f"{self._template!r} has two {{?...}}; the second must be {{&...}}")
            self._form_mark = self._form_mark or operator
            self._form += names
            return
        if self._form_mark:
            raise UriTemplateError(
                f"{self._template!r}: {{{expression}}} comes after a query expression, which must be last"
            )
        self._add_variables(operator, [name.removesuffix("*") for name in names], explode=explode)

    def _add_variables(self, operator: str, names: list[str], *, explode: bool) -> None:
        reserved = operator in {"+", "#"} and bool(operator)
        separator = operator if operator in {".", "/", ";"} else ","
        if reserved:
            stops = ""
        elif explode:
            stops = "?#"
        else:
            stops = "/?#" + (separator if len(names) > 1 or operator in {".", ";"} else "")
        for index, name in enumerate(names):
            mark = separator if index else operator.replace("+", "")
            mark += f"{name}=" if operator == ";" else ""
            if mark:
                self._parts.append(_Literal(mark))
            self._parts.append(_Variable(name, stops, slashes=reserved or explode, reserved=reserved))

    def _hint(self, expression: str, name: str) -> str:
        if expression[:1] and expression[0] in "=!@|$()*%^~'":
            return f"{{{expression}}} begins with {expression[0]!r}, which is no operator of RFC 6570"
        if ":" in name:
            name = name.partition(":")[0]
            return f"{{{expression}}} keeps only a prefix of its value, which cannot be matched; use {{{name}}}"
        if name.endswith("*"):
            return f"{{{expression}}} takes a list, and only {{/{name.rstrip('*')}*}} can; values are strings"
        return f"{{{expression}}} has no variable name RFC 6570 allows (letters, digits, _ and .)"

    # ----------------------------------------------------------------------------------------------------- matching

    def _ends(self, uri: str) -> list[set[int]] | None:
        """Find for each part where it can begin so that all the rest matches; then where the last can end."""
        last = {len(uri)}
        if self._form_mark:
            last |= {index for index, character in enumerate(uri) if character == self._form_mark}
        ends = [last]
        # A percent-encoded character belongs to one part as a whole.
        inside = {index + offset for index, character in enumerate(uri) if character == "%" for offset in (1, 2)}
        for part in reversed(self._parts):
            after = ends[-1]
            if isinstance(part, _Literal):
                size = len(part.text)
                starts = {end - size for end in after if uri.startswith(part.text, end - size) and end >= size}
            else:
                starts = _starts(uri, part.stops, after)
            starts -= inside
            if not starts:
                return None
            ends.append(starts)
        ends.reverse()
        return ends if 0 in ends[0] else None

    def _match_form(self, query: str, values: dict[str, str]) -> dict[str, str] | None:
        if not query:
            return values
        for pair in query[1:].split("&"):
            name, equals, text = pair.partition("=")
            value = _decode(text)
            if not equals or name not in self._form or name in values or value is None:
                return None
            values[name] = value
        return values


def _starts(uri: str, stops: str, after: set[int]) -> set[int]:
    """Find where a variable can begin so that it ends, one character later or more, in *after*."""
    starts: set[int] = set()
    reachable = False
    for position in range(len(uri) - 1, -1, -1):
        if uri[position] in stops:
            reachable = False
            continue
        reachable = reachable or position + 1 in after
        if reachable:
            starts.add(position)
    return starts


def _longest(uri: str, start: int, stops: str, after: set[int]) -> int:
    longest = position = start
    while position < len(uri) and uri[position] not in stops:
        position += 1
        if position in after:
            longest = position
    return longest


def _decode(text: str) -> str | None:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _is_safe(value: str, *, slashes: bool) -> bool:
    if not slashes and "/" in value:
        return False
    return "\0" not in value and not any(segment in {".", ".."} for segment in re.split(r"[/\\]", value))


def _encode_non_ascii(text: str) -> str:
    """Percent-encode what is not ASCII, as an IRI becomes a URI (RFC 3987 section 3.1)."""
    return text if text.isascii() else quote(text, safe="".join(map(chr, range(128))))
