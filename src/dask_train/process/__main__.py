"""``python -P -m dask_train.process``: a template, started by a Dask worker only; then, in its forks, what they are."""

from __future__ import annotations

import sys

from dask_train.process.life import die_with_parent, write_stacks_on_signal


def main() -> None:
    """Guard this process's life first, then import the rest."""
    parent_pid, stacks, end = map(int, sys.argv[1:4])
    die_with_parent(parent_pid)
    write_stacks_on_signal(stacks)
    from dask_train.process.become import become
    from dask_train.process.template import serve

    become(serve(end, sys.argv[4].split(",")), stacks)


if __name__ == "__main__":
    main()
