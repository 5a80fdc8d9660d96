"""``python -P -m dask_train.testing``: started by :class:`~dask_train.testing.RoleProcesses` only.

The name and the rank of the role are arguments just so that ``ps`` shows them.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

from dask_train.process.life import begin


def main() -> None:
    """Guard this process's life first, then import the rest."""
    (end,) = begin(0)
    from dask_train.testing.role_process import run_role

    run_role(Connection(end))


if __name__ == "__main__":
    main()
