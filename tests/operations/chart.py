"""Helm itself, from its wheel, in a process of its own: its runtime has signals and threads that no test should see.

``python -m tests.operations.chart lint|render CHART VALUES`` writes JSON; Helm's objections go to standard error.
"""

import json
import sys

import helm_python as helm


def main(command: str, chart: str, values: str) -> None:
    given = helm.parse_set_string(values)
    if command == "lint":
        print(json.dumps(helm.lint(chart, given, strict=True)))
        return
    with helm.Chart.load(chart) as loaded:
        try:
            print(json.dumps(loaded.render(given, name="r", namespace="n")))
        except helm.HelmRenderError as exc:
            sys.exit(str(exc))


if __name__ == "__main__":
    main(*sys.argv[1:])
