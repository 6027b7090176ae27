"""What a function's docstring tells a model: what the function does, and what each parameter means."""

from __future__ import annotations

import inspect
from typing import NamedTuple

import docstring_parser
from docstring_parser.common import DocstringParam


class Documentation(NamedTuple):
    """A docstring taken apart: the text without its parameter section, and that section by parameter name."""

    description: str | None
    parameters: dict[str, str]


def document(docstring: str | None) -> Documentation:
    """Read a docstring in Google, NumPy, reST or Epydoc style; one in no such style is a description as it stands."""
    text = inspect.cleandoc(docstring or "")
    if not text:
        return Documentation(None, {})
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Documentation(text, {})
    described = {
        param.arg_name: " ".join(param.description.split()) for param in parsed.params if param.description is not None
    }
    if not described:
        return Documentation(text, {})
    # DocstringParam also stands for attributes; those belong to the text.
    parsed.meta = [each for each in parsed.meta if not isinstance(each, DocstringParam) or each.args[0] == "attribute"]
    return Documentation(docstring_parser.compose(parsed).strip() or None, described)
