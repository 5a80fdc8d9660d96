"""A search as it is kept: its state and its best model in a checkpoint, and next to it those of trials.

Trials keep theirs in folders of their own there. The place is claimed while a search keeps itself there, and refused to
one that was begun with something else.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.errors import CheckpointError
from dask_train.searching import best_model
from dask_train.training.launch import place_of

if TYPE_CHECKING:
    from dask_train.trainers.common.entry import LoopRole


# Raised when what is stored means something else than before.
FORMAT = 1
# Under this name the best trial's value is the score of a checkpoint; more is better.
_VALUE = "value of the best trial"
_MODEL = "model"

# A Keras model taken apart, or another model as it is.
Model = Any

_OF_A_TRIAL = re.compile(r"trial-\d{8,}-\d+-[0-9a-f]{8}")


class KeptState(Protocol):
    """What a checkpoint of a kind of search holds: a dataclass of plain values, and of what libraries can pickle.

    Attributes
    ----------
    kind
        The kind of search, which names the file: no kind reads that of another.
    best
        Number and value of the trial whose model is the best one; None before there is one.
    """

    kind: ClassVar[str]
    best: tuple[int, float] | None
    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=KeptState)


@contextmanager
def kept_search(
    policy: Checkpoint,
    arguments: Mapping[str, Any],
    form: type[S],
    *,
    resume: bool,
    of_trials: bool = False,
) -> Iterator[KeptSearch[S]]:
    """Claim the place where a search with these arguments is kept, while this lasts; see :meth:`KeptSearch.load`."""
    place = place_of(policy, f"{form.kind}-{uuid.uuid4().hex[:6]}", resume)
    kept = KeptSearch(place, arguments, form, of_trials=policy if of_trials else None)
    try:
        kept.load()
        yield kept
    finally:
        kept.close()


class KeptSearch(Generic[S]):
    """A folder of checkpoints, of which each is the whole state of a search; for one client.

    Parameters
    ----------
    place
        Where.
    arguments
        What fixes the search; ``"direction"`` among it, unless more is always better.
    form
        The class of the state.
    of_trials
        How often trials keep checkpoints of their own, and how many stay, as those of models do that train in loops;
        None if they keep none, and begin anew. With it, ``"metric"`` is among the arguments.

    Attributes
    ----------
    place, url
        Where.
    folders
        Those of trials; None if trials keep no checkpoints.
    state
        What an earlier call has left there, where this one resumes it; else None.
    best_model
        The best model of then; None if there was none.
    """

    def __init__(
        self,
        place: CheckpointPlace,
        arguments: Mapping[str, Any],
        form: type[S],
        *,
        of_trials: Checkpoint | None = None,
    ) -> None:
        self.place, self.url = replace(place, best=_VALUE, mode="max"), place.url
        self._form, self._arguments = form, _plain(arguments)
        self._then: Mapping[str, Any] = {}
        self._folder = CheckpointFolder(self.place)
        self._scratch = tempfile.TemporaryDirectory(prefix="dask-train-search-")
        self._mode = "min" if arguments.get("direction") == "minimize" else "max"
        self.folders: TrialFolders | None = None
        if of_trials is not None:
            self.folders = TrialFolders(place=self.place, policy=of_trials, metric=arguments["metric"], mode=self._mode)
        self.state: S | None = None
        self.best_model: Model | None = None
        self._best: int | None = None  # the trial whose model is kept

    def load(self) -> None:
        """Claim the place, and read what there is to resume.

        Raises
        ------
        CheckpointError
            It can't be written or read from here; another search keeps its checkpoints there; or what is there is no
            search of this kind, or one with other arguments.
        """
        scratch = Path(self._scratch.name)
        self._folder.check()
        self._folder.claim()
        loaded = self._folder.load(scratch) if self._folder.resume else None
        if loaded is None:
            if self.folders is not None:
                self.folders.remove_all()
            return
        self.state = self._opened(loaded.folder)
        self.check_same(dict(self._arguments))
        self._best = None if self.state.best is None else self.state.best[0]
        # Earlier versions have kept the model of a grid in each checkpoint, and none of them as the best.
        folder = (self._folder.load_best(scratch) or loaded).folder
        if (folder / _MODEL).exists():
            self.best_model = best_model.kept(folder / _MODEL)

    def _opened(self, folder: Path) -> S:
        """Return the state of a checkpoint, and note the arguments of then."""
        try:
            record: dict[str, Any] = cloudpickle.loads((folder / self._file).read_bytes())
            version = record["format"]
            if version <= FORMAT:
                self._then = record["arguments"]
                known = {each.name for each in fields(self._form)}
                return self._form(**{name: value for name, value in record.items() if name in known})
        except Exception as error:  # whatever Optuna's objects raise when they are made again
            names = ", ".join(sorted(file.name for file in folder.rglob("*") if file.is_file()))
            raise CheckpointError(
                f"The checkpoint, which has the files {names}, is none of dt.search, or can't be read here.",
                "It was made with another verb, by another kind of search, or with another version of Optuna.",
                "Pass checkpoint= another folder.",
            ) from error
        raise CheckpointError(
            f"The search has format {version}, and this dask-train reads up to {FORMAT}.",
            "A later version has written it.",
            "Install that version, or pass checkpoint= another folder.",
        )

    @property
    def _file(self) -> str:
        return f"{self._form.kind}.pickle"

    def check_same(self, arguments: Mapping[str, Any]) -> None:
        """Check that what is resumed was begun with the same; and note it for what is kept from now on.

        Raises
        ------
        CheckpointError
            It was not.
        """
        now, then = _plain(arguments), self._then
        self._arguments.update(now)
        differences = [
            f"{name} was {then[name]!r}, and is {now[name]!r}" for name in now if then.get(name, now[name]) != now[name]
        ]
        if differences:
            raise CheckpointError(
                f"The search at {self.url} was begun with something else: {'; '.join(differences)}.",
                "Its trials can't be compared with those that were to come.",
                "Pass the data and arguments of then, or checkpoint= another folder to begin anew.",
            )

    def save(self, state: S, model: Model | None, *, num_steps: int | None = None) -> None:
        """Keep all of it; the model is written where it is another trial's than before.

        Parameters
        ----------
        state, model
            As they are now.
        num_steps
            Number of steps so far: it is kept only if it is time to by this number, and by the seconds since the last
            one. None for always.

        Raises
        ------
        CheckpointError
            It can't be written.
        """
        if num_steps is not None and not self._folder.due(num_steps):
            return
        number, value = state.best or (None, None)
        is_new = number != self._best and model is not None

        def write(folder: Path) -> None:
            record = {each.name: getattr(state, each.name) for each in fields(state)}
            record |= {"format": FORMAT, "arguments": self._arguments}
            (folder / self._file).write_bytes(cloudpickle.dumps(record))
            if is_new:
                best_model.keep(folder / _MODEL, model)

        score = None if value is None or not is_new else value if self._mode == "max" else -value
        self._folder.save(write, Path(self._scratch.name), score=score)
        self._best = number
        if num_steps is not None:
            self._folder.was_kept(num_steps)

    def end(self) -> None:
        """End the search: no trial needs its checkpoints any more."""
        if self.folders is not None:
            with suppress(Exception):
                self.folders.remove_all()

    def close(self) -> None:
        """Let others have the place."""
        self._folder.release()
        self._scratch.cleanup()


def _plain(value: Any) -> Any:
    """As it comes back from JSON, which makes lists of tuples, and text of what it doesn't know."""
    return json.loads(json.dumps(value, default=str))


@dataclass(frozen=True, kw_only=True)
class TrialFolders:
    """The folders of trials, one for each start of a trial.

    Attributes
    ----------
    place
        Where the search is kept.
    policy
        How often trials keep checkpoints, and how many stay.
    metric, mode
        The score by which the best checkpoint of a trial is known.
    """

    place: CheckpointPlace
    policy: Checkpoint
    metric: str
    mode: str

    def new(self, number: int, num_before: int) -> str:
        """Return the name of a folder for a trial that is begun, or begun again: one writer each."""
        return f"trial-{number:08d}-{num_before}-{secrets.token_hex(4)}"

    def url_of(self, name: str) -> str:
        """Return where the folder of that name lies."""
        return f"{self.place.url.rstrip('/')}/{name}"

    def with_checkpoints(self, role: LoopRole, name: str) -> LoopRole:
        """Return the same work of a trial, with checkpoints in that folder."""
        policy = replace(self.policy, url=self.url_of(name), best=self.metric, mode=self.mode, restore_best=False)
        keeping: LoopRole = replace(role, task=replace(role.task, checkpoint=policy, resume=True))  # type: ignore[type-var]
        return keeping

    def remove(self, names: Iterable[str]) -> None:
        """Remove checkpoints of a trial that has ended; what can't be removed is left there."""
        system, root = self.place.opened()
        for name in names:
            with suppress(Exception):
                system.rm(f"{root}/{name}", recursive=True)

    def remove_all(self) -> None:
        """Remove checkpoints of all trials, also of those of an earlier search in this place."""
        system, root = self.place.opened()
        system.invalidate_cache()
        names = [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]
        self.remove(name for name in names if _OF_A_TRIAL.fullmatch(name))
