"""Job names, counts and address books: which roles run, and where each can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dask_train.input_errors import raises_at_the_call
from dask_train.spelling import named

# Folders are named after runs, and ids of runs are typed in shells.
# In a role's name: files are called by it, and may have names of 255 bytes.
_MOST_LETTERS = 80
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", re.ASCII)


class AddressBook(dict[str, list[str]]):
    """The addresses of a network by job; the position in a list is the task's index.

    A plain ``dict`` with the reading methods of ``tf.train.ClusterSpec``, which a client without TensorFlow can read.
    TensorFlow takes it as it is where it takes a dict for a cluster: ``tf.distribute.Server(book, ...)``,
    ``tf.compat.v1.train.replica_device_setter(cluster=book)``, ``tf.train.ClusterSpec(book)``. Where it asks for a
    ``ClusterSpec`` itself, as a ``ClusterResolver`` does, pass ``tf.train.ClusterSpec(book)``.

    Examples
    --------
    >>> book = AddressBook(ps=["10.0.0.1:40123"], worker=["10.0.0.2:40111", "10.0.0.3:40112"])
    >>> book.as_dict()["ps"], book.num_tasks("worker"), book.task_address("worker", 1)
    (['10.0.0.1:40123'], 2, '10.0.0.3:40112')
    """

    def as_dict(self) -> dict[str, list[str]]:
        """Return a plain ``{job: [address, ...]}``, copied.

        Returns
        -------
        dict of str to list of str
            It may be changed.
        """
        return {job: list(addresses) for job, addresses in self.items()}

    @property
    def jobs(self) -> list[str]:
        """The job names, in the order in which they were asked for."""
        return list(self)

    @raises_at_the_call
    def num_tasks(self, job: str) -> int:
        """Return how many tasks ``job`` has.

        Parameters
        ----------
        job
            The name of a job.

        Returns
        -------
        int
            At least 1.

        Raises
        ------
        ValueError
            There is no such job.
        """
        return len(self.job_tasks(job))

    @raises_at_the_call
    def job_tasks(self, job: str) -> list[str]:
        """Return the addresses of ``job`` by task index.

        Parameters
        ----------
        job
            The name of a job.

        Returns
        -------
        list of str
            The very list of this book.

        Raises
        ------
        ValueError
            There is no such job.
        """
        if job not in self:
            raise ValueError(f"The network has no job {job!r}; its jobs are {', '.join(self)}.")
        return self[job]

    @raises_at_the_call
    def task_address(self, job: str, index: int) -> str:
        """Return the address of one task.

        Parameters
        ----------
        job, index
            Which task.

        Returns
        -------
        str
            ``host:port``, or the address of a Dask worker.

        Raises
        ------
        ValueError
            There is no such job, or it has fewer tasks.
        """
        tasks = self.job_tasks(job)
        if not 0 <= index < len(tasks):
            raise ValueError(f"Job {job!r} has {len(tasks)} tasks, numbered from 0; there is no task {index!r}.")
        return tasks[index]

    def tasks(self) -> Iterator[tuple[str, int, str]]:
        """Go through the tasks of all jobs, in order.

        Yields
        ------
        tuple of str, int, str
            Job, index and address.
        """
        for job, addresses in self.items():
            for index, address in enumerate(addresses):
                yield job, index, address


def check_jobs(jobs: Mapping[str, int] | None, counts: Mapping[str, int], what: str = "jobs") -> dict[str, int]:
    """Return one ``{job: count}`` from the mapping, which errors call ``what``, and the keywords of a call, checked.

    Raises
    ------
    TypeError
        A count is no whole number, or ``jobs`` is no mapping.
    ValueError
        A count is below 1, a name is empty, not a word, or given twice.
    """
    if jobs is not None and not isinstance(jobs, Mapping):
        raise TypeError(
            f"{what} is {jobs!r}, of type {type(jobs).__name__}; pass a mapping of {what.removesuffix('s')} name to "
            "count, such as {'worker': 2}."
        )
    merged = dict(jobs or {})
    for job, count in counts.items():
        if job in merged:
            raise ValueError(f"Job {job!r} is given twice: in jobs= and as a keyword. Name it once.")
        merged[job] = count
    for job, count in merged.items():
        _check_job(job, count, what.removesuffix("s"))
    return merged


def _check_job(job: str, count: int, what: str) -> None:
    if not isinstance(job, str):
        raise TypeError(f"The {what} name {job!r} is a {type(job).__name__}; {what} names are strings.")
    # TensorFlow's device strings (/job:NAME/task:0) take letters, digits and underscores, starting with a letter.
    if not (job.isascii() and job.isidentifier() and not job.startswith("_") and len(job) <= _MOST_LETTERS):
        shown = repr(job) if len(job) <= _MOST_LETTERS else f"{job[:40]!r}..."
        raise ValueError(
            f"{shown} can't be a {what} name: TensorFlow takes a letter, then letters, digits and underscores, here "
            f"{_MOST_LETTERS} in all."
        )
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{job}={count!r} is a {type(count).__name__}; a {what}'s count is a whole number of tasks.")
    if count < 1:
        raise ValueError(
            f"{job}={count} asks for no task; a {what}'s count is at least 1. Leave the {what} out instead."
        )


def check_run_name(name: Any) -> str | None:
    """Return a run's name, which begins its id and so the names of its folders; None for none.

    Raises
    ------
    TypeError, ValueError
        It is no string, is too long, or has other characters than letters, digits, ``_``, ``.`` and ``-``.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"name is a {type(name).__name__}; a run's name is a string.")
    if not _RUN_NAME.fullmatch(name):
        shown = f"{name[:40]!r}..." if len(name) > 40 else repr(name)
        raise ValueError(
            f"{named('name')} is {shown}, which can't begin a run's name: that is a letter or digit, then up to 79 "
            "letters, digits, '_', '.' or '-'."
        )
    return name
