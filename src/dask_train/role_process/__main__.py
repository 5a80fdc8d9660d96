"""``python -P -m dask_train.role_process``: started by an agent only, with descriptors for all that it needs.

The name of the role and the run are arguments just so that ``ps`` shows them.
"""

from __future__ import annotations

import sys

from dask_train.role_process.life import die_with, write_stacks_on_signal


def main() -> None:
    """Guard this process's life first, then import the rest."""
    parent_pid, lifeline, stacks, account, end = map(int, sys.argv[-5:])
    die_with(parent_pid, lifeline)
    write_stacks_on_signal(stacks)
    from dask_train.role_process.role import run_role

    run_role(end, account)


if __name__ == "__main__":
    main()
