"""The clients that people use, each with its own idea of the protocol, against the fixture server.

A client's script must take every step we know of, and each must bring back what the fixture server has: a step that was
not taken, or came back empty, fails the test as much as an error.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.processes import ROOT, ServerProcess, missing, node

HERE: Final = Path(__file__).parent
SCRIPT_WITHIN: Final = 120.0  # seconds; 2 to 5 on an idle machine

# What a step brings back, as a regular expression: the clients write the same things in their own ways.
ANY: Final = ""
EVERYWHERE: Final = {
    "tools/list": "test_simple_text",
    "call simple": r"This is a simple text response for testing\.",
    "call image": r"image/png",
    "call error": r"This tool intentionally returns an error for testing(?i:.*is_?error\"?[=:] ?true)",
    "progress": r"Reported progress three times\.",
    "progress seen": r"\[0(\.0)?, ?50(\.0)?, ?100(\.0)?\]",
    "logging": r"Logged three messages\.",
    "logs seen": r"Tool execution started.*Tool processing data.*Tool execution completed",
    "resources/list": "test://static-binary",
    "templates/list": r"test://template/\{id\}/data",
    "read text": r"This is the content of the static text resource\.",
    "read template": r'"id":"42","templateTest":true',
    "prompts/list": "test_prompt_with_image",
    "prompts/get": "Prompt with arguments: arg1='a', arg2='b'",
    "completion": r"tea\W+test\W+testing\W",
    "sampling": "LLM response: an answer to 'hi'",
    "elicitation": r'User response: action=accept, content=\{"username":"x","email":"x"\}',
    "elicit enums": r'"untitledSingle":"option1","titledSingle":"value1","legacyEnum":"opt1",'
    r'"untitledMulti":\["option1"\],"titledMulti":\["value1"\]',
    "roots": "Roots: file:///project",
}
TWO_ERAS: Final = {
    "a header for an argument": "region=Zürich",
    "two rounds": r"x likes x\.",
    "a prompt that asks": "Answer with this in mind: x",
}
ON_LEGACY: Final = {
    "ping": ANY,
    "setLevel": ANY,
    "subscribe": ANY,
    "unsubscribe": ANY,
    "resume a stream": r"The result, after a new connection\.",
}
ON_MODERN: Final = {
    "several questions at once": "Hello, x",
    "subscriptions/listen": "(?i)tools.?list.?changed",
}
DEFAULTS: Final = {"elicit defaults": r'"name":"x","age":1,"score":1(\.0)?,"status":"active","verified":true'}
TERMINATE: Final = {"terminate": ANY}


def without(steps: dict[str, str], *names: str) -> dict[str, str]:
    """All steps but those."""
    return {name: pattern for name, pattern in steps.items() if name not in names}


LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"


@dataclass(frozen=True)
class Program:
    """A client, and where `make` puts it. `variable`: names an environment variable that can say otherwise."""

    name: str
    default: Path
    variable: str | None = None

    @property
    def path(self) -> Path:
        """The Python of its environment, or the folder of its Node packages."""
        return self.default if self.variable is None else Path(os.environ.get(self.variable, self.default))


MCP2: Final = Program("mcp 2.3", Path(sys.executable))
MCP1: Final = Program("mcp 1.30", ROOT / ".cache/clients/mcp1/bin/python", "MCPD_MCP1_PYTHON")
FASTMCP: Final = Program("fastmcp 4.2", ROOT / ".cache/clients/fastmcp/bin/python", "MCPD_FASTMCP_PYTHON")
# No variable: Node looks for the packages of a module beside that module.
TYPESCRIPT: Final = Program("the TypeScript SDK", HERE / "ts/node_modules")


@dataclass(frozen=True)
class Case:
    """A client in one mode: its script, the revision to settle on, the steps to take."""

    program: Program
    script: str
    arguments: tuple[str, ...]
    negotiated: str
    steps: dict[str, str]


MCP_LEGACY: Final = EVERYWHERE | TWO_ERAS | ON_LEGACY
MCP_MODERN: Final = EVERYWHERE | TWO_ERAS | ON_MODERN
FASTMCP_STEPS: Final = without(EVERYWHERE, "call image", "completion", "elicit enums")

CASES: Final = (
    Case(MCP2, "py_mcp2.py", ("auto",), MODERN, MCP_MODERN),
    Case(MCP2, "py_mcp2.py", ("2026-07-28",), MODERN, MCP_MODERN),
    Case(MCP2, "py_mcp2.py", ("legacy",), LEGACY, MCP_LEGACY),
    Case(MCP2, "py_mcp2.py", ("legacy", "asyncio"), LEGACY, MCP_LEGACY),
    Case(MCP1, "py_mcp1.py", ("trio",), LEGACY, EVERYWHERE | DEFAULTS | ON_LEGACY),
    Case(MCP1, "py_mcp1.py", ("asyncio",), LEGACY, EVERYWHERE | DEFAULTS | ON_LEGACY),
    Case(FASTMCP, "py_fastmcp.py", ("auto",), MODERN, without(FASTMCP_STEPS, "logging", "logs seen")),
    Case(FASTMCP, "py_fastmcp.py", ("legacy",), LEGACY, FASTMCP_STEPS | {"ping": ANY, "setLevel": ANY}),
    Case(TYPESCRIPT, "ts/ts1.mjs", (), LEGACY, EVERYWHERE | DEFAULTS | ON_LEGACY | TERMINATE),
    Case(TYPESCRIPT, "ts/ts2.mjs", ("legacy",), LEGACY, MCP_LEGACY | TERMINATE),
    Case(TYPESCRIPT, "ts/ts2.mjs", ("auto",), MODERN, MCP_MODERN),
    Case(TYPESCRIPT, "ts/ts2.mjs", ("2026-07-28",), MODERN, MCP_MODERN),
)

ON_STDIO: Final = (
    "tools/list",
    "call simple",
    "call error",
    "progress",
    "progress seen",
    "read text",
    "prompts/get",
    "elicitation",
)
STDIO_STEPS: Final = {name: EVERYWHERE[name] for name in ON_STDIO}
STDIO: Final = (
    Case(MCP2, "py_mcp2_stdio.py", ("legacy",), LEGACY, STDIO_STEPS),
    Case(MCP2, "py_mcp2_stdio.py", ("auto",), MODERN, STDIO_STEPS),
    Case(MCP2, "py_mcp2_stdio.py", ("2026-07-28",), MODERN, STDIO_STEPS),
)

OURS: Final = {"PYTHONPATH", "PYTHONWARNINGS", "PYTHONHOME"}


def _param(case: Case) -> object:
    name = "-".join((Path(case.script).stem, *case.arguments))
    return pytest.param(case, id=name)


def _environment() -> dict[str, str]:
    # What is set for our own interpreter is not for the others.
    return {name: value for name, value in os.environ.items() if name not in OURS}


def _command(case: Case) -> list[str]:
    if not case.program.path.exists():
        missing(case.program.name, "make pytest")
    interpreter = node() if case.program is TYPESCRIPT else case.program.path
    return [str(interpreter), str(HERE / case.script)]


def _check(command: list[str], env: dict[str, str], negotiated: str, steps: dict[str, str]) -> None:
    done = subprocess.run(
        command, capture_output=True, timeout=SCRIPT_WITHIN, env=env, cwd=ROOT, check=False, encoding="utf-8"
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert f"negotiated {negotiated}" in done.stdout, said
    assert "fails=0" in done.stdout, said
    taken = steps_taken(done.stdout)
    assert taken.keys() == steps.keys(), said
    other = {name: taken[name] for name, pattern in steps.items() if not re.search(pattern, taken[name])}
    assert not other, said


def steps_taken(stdout: str) -> dict[str, str]:
    """What each step brought back, without the backslashes of a client that shows a string inside a string."""
    lines = re.findall(r"^(?:OK   (.+?):|(\w+ seen)) ?(.*)$", stdout, re.MULTILINE)
    return {step or seen: result.replace("\\", "") for step, seen, result in lines}


@pytest.mark.clients
@pytest.mark.parametrize("case", [_param(case) for case in CASES])
def test_client_takes_every_step(case: Case, fixture_server: ServerProcess) -> None:
    command = [*_command(case), fixture_server.url, *case.arguments]
    _check(command, _environment(), case.negotiated, case.steps)


@pytest.mark.clients
@pytest.mark.parametrize("case", [_param(case) for case in STDIO])
def test_client_takes_every_step_over_stdio(case: Case) -> None:
    server = [sys.executable, "-m", "tests.fixture_server", "--stdio"]
    _check([*_command(case), *case.arguments, *server], dict(os.environ), case.negotiated, case.steps)


def test_only_steps_that_went_well_count_as_taken() -> None:
    assert steps_taken("negotiated X\nOK   ping: {}\nFAIL setLevel: Error\nprogress seen [0]\ndone: fails=1\n") == {
        "ping": "{}",
        "progress seen": "[0]",
    }
