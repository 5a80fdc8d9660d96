"""``python -P -m dask_train.prediction``: a model process, started by a Dask worker only, with descriptors for all.

The model's name is an argument just so that ``ps`` shows it.
"""

from __future__ import annotations

import sys

from dask_train.role_process.life import die_with, write_stacks_on_signal


def main() -> None:
    """Guard this process's life first, then import the rest."""
    parent_pid, lifeline, stacks, end = map(int, sys.argv[-4:])
    die_with(parent_pid, lifeline)
    write_stacks_on_signal(stacks)
    from dask_train.prediction.process import serve

    serve(end)


if __name__ == "__main__":
    main()
