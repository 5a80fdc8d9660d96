"""``python -P -m dask_train.predicting.server``: a model process, started by a Dask worker only.

The model's name is an argument just so that ``ps`` shows it.
"""

from __future__ import annotations

from dask_train.process.life import begin


def main() -> None:
    """Guard this process's life first, then import the rest."""
    (end,) = begin(0)
    from dask_train.predicting.server.process import serve

    serve(end)


if __name__ == "__main__":
    main()
