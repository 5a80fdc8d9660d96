"""``dask train demo``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dask_train.cli.interrupt_noise import without_interrupt_noise
from dask_train.errors import DaskTrainError


@click.command()
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster instead of a local one.")
@click.option("--ps", default=1, show_default=True, type=click.IntRange(min=1), help="Parameter servers.")
@click.option("--workers", default=4, show_default=True, type=click.IntRange(min=1), help="Training workers.")
@click.option("--copies", default=20, show_default=True, type=click.IntRange(min=1), help="Copies of MNIST.")
@click.option("--target", default=0.08, show_default=True, type=float, help="Validation cross-entropy to reach.")
@click.option("--max-seconds", default=120.0, show_default=True, type=float, help="Give up training after this.")
@click.option("--sync", is_flag=True, help="Synchronous training: each step applies the mean of all workers.")
@click.option(
    "--report",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the page about the run goes.",
)
def demo(
    scheduler: str | None,
    ps: int,
    workers: int,
    copies: int,
    target: float,
    max_seconds: float,
    sync: bool,
    report: Path,
) -> None:
    """Prepare MNIST with Dask and train on it with a TensorFlow network in the same workers.

    \b
    Exit status
      0    the target was reached
      1    it was not, or the run failed
      2    the command line can't be understood
      130  Ctrl-C
    """
    if not report.parent.is_dir():  # seen now, not when the training is over
        message = f"The folder {report.parent} does not exist. Make it, or name another path."
        raise click.BadParameter(message, param_hint="--report")
    from dask_train.demo.live import LiveLine
    from dask_train.demo.main_job import run_main_job
    from dask_train.demo.pipeline import DemoSettings

    settings = DemoSettings(ps=ps, workers=workers, copies=copies, target=target, max_seconds=max_seconds, sync=sync)
    try:
        with without_interrupt_noise(), LiveLine() as line:
            outcome, record = run_main_job(settings, scheduler=scheduler, report=report, line=line)
    except KeyboardInterrupt:
        click.echo("Interrupted; everything that was started has ended.", err=True)
        sys.exit(130)
    except (DaskTrainError, ImportError) as error:
        raise click.ClickException(str(error)) from error
    width = max(len(name) for name, _ in record.summary)
    click.echo()
    for name, value in record.summary[:-1]:
        click.echo(f"{name:<{width}}  {value}")
    click.echo(f"{'report':<{width}}  {report}")
    click.echo(": ".join(record.summary[-1]))
    if not outcome.good_enough:
        click.echo(f"The target of {target:g} was not reached within {max_seconds:g} s.", err=True)
        sys.exit(1)
