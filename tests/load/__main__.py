"""`python -m tests.load`: the long run, with a report in Markdown."""

import random
import sys

import click

from tests.load.run import load
from tests.load.vitals import Vitals


@click.command("python -m tests.load")
@click.option("--seconds", type=float, default=600.0, show_default=True)
@click.option("--clients", type=int, default=200, show_default=True)
@click.option("--processes", type=int, default=8, show_default=True, help="Over how many processes they are spread.")
@click.option("--rate", type=float, default=40.0, show_default=True, help="Calls a second, of all clients together.")
@click.option("--warm-up", type=float, default=60.0, show_default=True, help="Seconds before the first look.")
@click.option("--front", type=click.Choice(["direct", "hypercorn"]), default="direct", show_default=True)
@click.option("--store", type=click.Choice(["memory", "redis"]), default="memory", show_default=True)
@click.option("--seed", default="", help="Repeats the choices of an earlier run, though not their timing.")
@click.option("--growth", type=float, default=8.0, show_default=True, help="MiB that memory may grow by.")
def main(seed: str, growth: float, **options: float | str) -> None:
    """Load a server with clients that leave in every way there is; exit with 1 unless it is as before."""
    seed = seed or f"{random.randrange(1 << 32)}"
    click.echo(f"seed {seed}", err=True)

    def tell(phase: str, done: float, now: Vitals) -> None:
        bar = "#" * round(done * 30)
        held = " ".join(f"{name}={number}" for name, number in now.held.items())
        click.echo(f"\r\x1b[K{phase:8} [{bar:30}] {held} memory={now.memory >> 20}M", err=True, nl=False)

    report = load(seed=seed, tell=tell, **options)
    click.echo(err=True)
    if report.growth > growth * 2**20:
        report.wrong.append(f"memory has grown by {report.growth / 2**20:.1f} MiB")
    click.echo("\n".join(report.lines()))
    sys.exit(1 if report.wrong else 0)


main()
