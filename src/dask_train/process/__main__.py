"""``python -P -m dask_train.process``: a template, started by a Dask worker only; then, in its forks, what they are."""

from __future__ import annotations

import select
import sys

from dask_train.process.life import die_with_end, write_stacks_on_signal


def main() -> None:
    """Guard this process's life first, then import the rest."""
    lifeline, listener, stacks = map(int, sys.argv[1:4])
    die_with_end(lifeline)
    write_stacks_on_signal(stacks)
    if select.select([lifeline], [], [], 0)[0]:
        sys.exit(1)
    from dask_train.process.become import become
    from dask_train.process.template import serve

    become(serve(lifeline, listener, sys.argv[4].split(",")), stacks)


if __name__ == "__main__":
    main()
