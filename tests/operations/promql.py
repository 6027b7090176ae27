"""What a PromQL expression says of metrics, held against a page of metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import promql_parser

from tests.operations.pages import Page

TARGET = frozenset({"job", "instance"})
"""The labels that Prometheus itself gives to all that it scrapes."""


class Reader:
    """Reads expressions, and notes which metrics they name."""

    def __init__(self, page: Page) -> None:
        """Args: *page*: with every metric there is."""
        self._labels = {name: labels | TARGET for name, labels in page.labels.items()}
        self._values = {(name, *label) for name, labels in page.series for label in labels}
        self.named: set[str] = set()

    def record(self, name: str, expression: str) -> None:
        """Later expressions may name what a rule records."""
        self._labels[name] = self.read(expression)

    def read(self, expression: str) -> frozenset[str]:
        """The labels of its result; an expression fails that names a metric, a label or a value which is not there."""
        return self._read(promql_parser.parse(expression))

    def _read(self, node: Any) -> frozenset[str]:
        match node:
            case promql_parser.VectorSelector():
                labels = self._labels[node.name]
                self.named.add(node.name)
                for matcher in node.matchers.matchers:
                    assert matcher.name in labels, str(node)
                    if matcher.op == promql_parser.MatchOp.Equal:
                        assert (node.name, matcher.name, matcher.value) in self._values, str(node)
                return labels
            case promql_parser.MatrixSelector():
                return self._read(node.vector_selector)
            case promql_parser.ParenExpr():
                return self._read(node.expr)
            case promql_parser.AggregateExpr():
                return _of(self._read(node.expr), node.modifier.labels if node.modifier else ())
            case promql_parser.Call():
                labels = frozenset[str]().union(*map(self._read, node.args))
                return labels - {"le"} if node.func.name == "histogram_quantile" else labels
            case promql_parser.BinaryExpr():
                return _joined(self._read(node.lhs), self._read(node.rhs), node.modifier)
            case _:
                assert isinstance(node, promql_parser.NumberLiteral), f"unknown to this reader: {node.prettify()}"
                return frozenset()


def _of(labels: frozenset[str], names: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(names)
    assert wanted <= labels, f"{set(wanted - labels)} is none of {set(labels)}"
    return wanted


def _joined(left: frozenset[str], right: frozenset[str], modifier: Any) -> frozenset[str]:
    if modifier is None or modifier.matching is None:
        # Without `on`, series of two sides match by all their labels.
        assert left == right or not left or not right, f"{set(left)} never match {set(right)}"
        return left or right
    on = modifier.matching.labels
    _of(right, on)
    # `and` keeps all labels of its left side, arithmetic those of `on`; what is named of the result has to be in both.
    return _of(left, on)
