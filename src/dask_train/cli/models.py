"""``dask train predict`` and ``evaluate``: a saved model over Parquet, without a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dask_train.cli.connection import connection_options, default_cluster
from dask_train.cli.interrupt_noise import without_interrupt_noise
from dask_train.cli.json_output import json_option, print_json
from dask_train.cli.local_functions import folder_of, load_function
from dask_train.cli.local_modules import local_modules_travel
from dask_train.cli.settings import names, pairs
from dask_train.errors import DaskTrainError

_TLS = ("tls_ca_file", "tls_cert", "tls_key")


@click.command()
@click.argument("model", type=click.Path())
@click.argument("x", metavar="INPUT", type=click.Path())
@click.argument("path", metavar="OUTPUT", type=click.Path())
@click.option("--features", callback=names, metavar="A,B", help="Columns.  [default: those the model was trained with]")
@click.option("--columns", callback=names, metavar="NAME,...", help="Names of the predictions.  [default: prediction]")
@click.option("--method", help="Of an estimator, such as predict_proba.")
@click.option("--batch-size", default=256, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@click.option("--overwrite", is_flag=True, help="Remove predictions that are there, and begin anew.")
@json_option
@connection_options
def predict(model: str, x: str, path: str, columns: list[str] | None, as_json: bool, **options: Any) -> None:
    """Write the predictions of a saved model for each row of Parquet.

    \b
    MODEL   what result.save(path) has written, or a .keras file
    INPUT   Parquet: a file, a folder or a pattern such as 'data/*.parquet'
    OUTPUT  a folder; it gets a Parquet file for each part of INPUT, with its index

    Each is a path or a URL, such as s3://bucket/folder. Called again after an interruption, it writes the files that
    are missing. Without a scheduler this process computes.

    \b
    Exit status
      0    all rows are written
      1    they can't be; what is written stays
      2    the command line can't be understood
      130  Ctrl-C; what is written stays
    """
    security = {name: options.pop(name) for name in ("scheduler", *_TLS)}
    with _exit_with_message("what is written stays, and the same command writes the rest"), default_cluster(**security):
        from dask_train.predicting.to_files import predict_to

        named = columns[0] if columns is not None and len(columns) == 1 else columns
        written = predict_to(path, model, _frame(x), columns=named, **options)
    if as_json:
        print_json(
            {
                "path": written.path,
                "rows": written.num_rows,
                "files": written.num_parts,
                "written": written.num_written,
            }
        )
        return
    click.echo(f"{written.num_rows:,} rows in {written.num_parts:,} files, {written.num_written:,} of them written now")


@click.command()
@click.argument("model", type=click.Path())
@click.argument("x", metavar="INPUT", type=click.Path())
@click.option("--label", callback=names, metavar="NAME", help="Target column.  [default: the one it was trained with]")
@click.option("--features", callback=names, metavar="A,B", help="Columns.  [default: those the model was trained with]")
@click.option("--sample-weight", metavar="NAME", help="Column of weights.")
@click.option("--batch-size", default=256, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@click.option("--loss", metavar="MODULE:FUNCTION", help="Of a torch module, such as torch.nn.functional:mse_loss.")
@click.option(
    "--metric",
    "metrics",
    callback=pairs,
    multiple=True,
    metavar="NAME=MODULE:FUNCTION",
    help="Of a torch module; may be repeated.",
)
@json_option
@connection_options
def evaluate(model: str, x: str, as_json: bool, **options: Any) -> None:
    """Print the loss and the metrics of a saved model over the rows of Parquet.

    \b
    MODEL  what result.save(path) has written, or a .keras file
    INPUT  Parquet: a file, a folder or a pattern such as 'data/*.parquet'

    Each is a path or a URL, such as s3://bucket/folder. Without a scheduler this process computes.

    \b
    Exit status
      0    the scores are printed
      1    they can't be computed
      2    the command line can't be understood
      130  Ctrl-C
    """
    security = {name: options.pop(name) for name in ("scheduler", *_TLS)}
    folders = dict.fromkeys(map(folder_of, [options["loss"] or "", *options["metrics"].values()]))
    with _exit_with_message("nothing was written"), local_modules_travel(*folders), default_cluster(**security):
        from dask_train.predicting.evaluation import evaluate as evaluated
        from dask_train.predicting.saved_models import opened_model

        opened, schema = opened_model(model, None)
        label = options.pop("label") or [column.name for column in (() if schema is None else schema.targets)]
        if not label:
            _check_model(opened)
            raise click.UsageError(f"{model} does not know which column is its target. Pass --label NAME.")
        functions: dict[str, Any] = {} if options["loss"] is None else {"loss": load_function(options["loss"])}
        if options["metrics"]:
            functions["metrics"] = {name: load_function(function) for name, function in options["metrics"].items()}
        arguments = {**options, **functions}
        wanted = {name: value for name, value in arguments.items() if value}
        scores = evaluated(opened, _frame(x), label=label[0] if len(label) == 1 else label, schema=schema, **wanted)
    if as_json:
        print_json(scores)
        return
    width = max(map(len, scores))
    for name, value in scores.items():
        click.echo(f"{name:<{width}}  {value:.6g}")


def _check_model(opened: Any) -> None:
    """Check that there is a model: of a file that is none, no label is the least that is missing.

    Raises
    ------
    ValueError
        There is none.
    """
    from dask_train.predicting.model import check_format
    from dask_train.predicting.server.files import ModelFile, read_file

    if isinstance(opened, ModelFile):
        check_format(opened.path)
        read_file(opened, compiled=False)


@contextmanager
def _exit_with_message(interrupted: str) -> Iterator[None]:
    """End the command with the words of an error; after Ctrl-C with what is left."""
    try:
        with without_interrupt_noise():
            yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted; {interrupted}.", err=True)
        sys.exit(130)
    except (DaskTrainError, ValueError, TypeError, ImportError, OSError) as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from error


def _frame(path: str) -> Any:
    """Open Parquet as a Dask frame."""
    from dask_train.extras import check_installed

    for package in ("pandas", "pyarrow"):
        check_installed("Reading Parquet", package, "pip install 'dask[dataframe]'")
    import dask.dataframe as dd

    try:
        return dd.read_parquet(path)
    except Exception as error:  # of pyarrow, fsspec or a file system of it, in their own classes
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} can't be read as Parquet: {reason.rstrip('.')}.") from error
