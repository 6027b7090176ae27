"""The image: what its recipe promises; and, where buildah and a base image are, that it builds and runs.

MCPD_IMAGE_BASE names the base to build on, as ``localhost/debian-python``; MCPD_BUILDAH holds more options of buildah.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "Containerfile"


@pytest.fixture(scope="module", autouse=True)
def recipe() -> str:
    return re.sub(r"\\\n\s*", "", RECIPE.read_text())


def test_what_runs_is_not_root_has_a_healthcheck_and_no_build_tools(recipe):
    build, final = re.split(r"^FROM ", recipe, flags=re.MULTILINE)[1:]
    assert "AS build" in build
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.MULTILINE), "a number: Kubernetes cannot look up a name"
    assert re.search(r"^HEALTHCHECK .*CMD \[.*/health", final, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["mcpd"\]$', final, re.MULTILINE), "the signal to stop must reach mcpd itself"
    assert not re.search(r"^(RUN|ADD)", final, re.MULTILINE), "all it has comes from the build stage"
    assert re.search(r"pip uninstall .*\bpip\b", build)
    assert "PYTHONDONTWRITEBYTECODE=1" in final


def test_the_context_holds_what_is_copied_and_nothing_else(recipe):
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)$", recipe, re.MULTILINE) for name in line.split()[:-1]]
    ignore = (ROOT / ".containerignore").read_text().split()
    assert ignore[0] == "*"
    assert {line[1:] for line in ignore if line.startswith("!")} == set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name


def test_it_builds_and_runs():
    base, buildah = os.environ.get("MCPD_IMAGE_BASE"), shutil.which("buildah")
    if base is None or buildah is None:
        pytest.skip("MCPD_IMAGE_BASE names no base image, or buildah is not installed")
    command = [buildah, *shlex.split(os.environ.get("MCPD_BUILDAH", ""))]

    def run(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The build reaches a package registry as the host does, with the host's certificates.
    certificates = ["--volume", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    chroot = ["--isolation", "chroot"]
    run("build", *chroot, "--format", "docker", "--build-arg", f"BASE={base}", *certificates, "-t", "mcpd-test", ".")
    container = run("from", "mcpd-test").strip()
    try:
        assert run("run", *chroot, container, "--", "mcpd", "--version").startswith("mcpd ")
        assert run("run", *chroot, container, "--", "python", "-c", "import os; print(os.getuid())") == "10001\n"
        tools = "for tool in cc gcc make pip; do command -v $tool; done; true"
        assert run("run", *chroot, container, "--", "sh", "-c", tools) == ""
        for module in ("mcpd.auth.signed", "mcpd_stores.redis", "mcpd.tracing"):
            run("run", *chroot, container, "--", "python", "-c", f"import {module}")
    finally:
        run("rm", container)
