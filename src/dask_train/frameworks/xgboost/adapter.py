"""XGBoost in a run: its tracker in rank 0, and its communicator in each rank while the user's function runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.boosting import BoostingFramework
from dask_train.frameworks.words import RankPlace, words_of_all
from dask_train.roles import AddressBook

# How long a rank may keep the others waiting in a collective call of XGBoost, in seconds: as long as it takes, since a
# run looks by itself for roles that hang (``train.progress.timeout``). XGBoost's own is 300.
PATIENCE_S = 24 * 3600


class XGBoostFramework(BoostingFramework):
    """What users name ``framework="xgboost"``.

    While the user's function runs in a chief or a worker, XGBoost's communicator is up: ``xgboost.train`` and
    ``QuantileDMatrix`` are of all ranks together, each with its own rows, and every rank has the same booster in the
    end. ``xgboost.collective.get_rank()`` is the rank: the chief's is 0, or worker 0's without a chief. A rank alone
    has no communicator, as in one process.

    ``session.num_threads`` is this rank's share of the host's cores, for ``nthread``.
    """

    name = "xgboost"
    title = "XGBoost"
    imports = ("xgboost", "dask_train.role.main")

    def __init__(self) -> None:
        super().__init__()
        self._coordinator: Any = None  # lives as long as this, which is as long as the process

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Form the communicator of the roles that train; other roles do not wait.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        extras = {"num_threads": me.num_threads}
        if (place := self._place(me, peers)) is None:
            yield extras
            return
        word = ""
        if not place.rank:
            word, self._coordinator = _start_tracker(place)
        _join(place, word, timeout_s)
        # The process ends after this, and its connections with it. collective.finalize() would tell the tracker, which
        # is gone with rank 0: a rank that comes after that tries three times, for 6 s.
        yield extras


def _join(place: RankPlace, word: str, timeout_s: float) -> None:
    from xgboost import collective
    from xgboost.core import XGBoostError

    tracker, _, port = words_of_all(place, word, timeout_s)[0].rpartition(":")
    try:
        collective.init(
            dmlc_communicator="rabit",
            dmlc_tracker_uri=tracker,
            dmlc_tracker_port=int(port),
            dmlc_task_id=f"{place.rank:08d}",  # ranks are by its order
            dmlc_timeout=PATIENCE_S,
        )
    except (XGBoostError, ValueError) as error:
        raise LaunchError(
            f"Rank {place.rank} of {place.num_ranks} could not join XGBoost's communicator at {tracker}:{port}: "
            f"{str(error).splitlines()[0]}.",
            "A rank was lost meanwhile, or a firewall lies between the hosts of the Dask workers.",
            "Look at the other roles' logs, and open the ports between the hosts.",
        ) from error
    assert collective.get_rank() == place.rank


def _start_tracker(place: RankPlace) -> tuple[str, Any]:
    """Start the tracker, which brings ranks together and ends them when one fails; return where it listens, and it."""
    from xgboost.tracker import RabitTracker

    host = place.meeting.rpartition(":")[0].strip("[]")
    tracker = RabitTracker(n_workers=place.num_ranks, host_ip=host, sortby="task")
    tracker.start()
    worker_arguments = tracker.worker_args()
    return f"{worker_arguments['dmlc_tracker_uri']}:{worker_arguments['dmlc_tracker_port']}", tracker
