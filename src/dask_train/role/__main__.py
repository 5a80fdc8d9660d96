"""``python -P -m dask_train.role``: started by an agent only, with descriptors for all that it needs.

The name of the role and the run are arguments just so that ``ps`` shows them.
"""

from __future__ import annotations

from dask_train.process.life import begin


def main() -> None:
    """Guard this process's life first, then import the rest."""
    end, account = begin(1)
    from dask_train.role.main import run_role

    run_role(end, account)


if __name__ == "__main__":
    main()
