"""A search with Optuna from its settings to its result, where it can't begin."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

optuna = pytest.importorskip("optuna")

from dask_train.driver.settings import RunSettings  # noqa: E402 - where there is Optuna
from dask_train.errors import PlacementError  # noqa: E402
from dask_train.searching import with_optuna  # noqa: E402
from dask_train.searching.pool import PoolSettings  # noqa: E402
from dask_train.searching.settings import StudySettings  # noqa: E402
from dask_train.searching.with_optuna import Subject, TrialMaking, search_with_optuna  # noqa: E402


class Nothing(Subject):
    """Trials that are never made."""

    @property
    def pool(self):
        return PoolSettings(framework=None)

    def fixed(self):
        return {}

    def making(self, place):
        return TrialMaking(spec=None, start=print)


def slots(*_, **__):
    raise PlacementError("The scheduler is gone.")


def broken_value(*_):
    raise RuntimeError("The storage is gone.")


@pytest.mark.parametrize("fails", ["its slots", "its study"])
def test_one_that_can_not_begin_leaves_the_users_study_as_it_was(monkeypatch, fails):
    @contextmanager
    def opened(*_):
        yield SimpleNamespace(data={"data": SimpleNamespace(schema=None)}, slots=slots)

    monkeypatch.setattr(with_optuna, "opened", opened)
    study = optuna.create_study()
    if fails == "its study":
        monkeypatch.setattr("dask_train.searching.optuna_study.points_left", broken_value)
    subject = Nothing(metric="score", keeps_trials=False, data={})
    with pytest.raises((PlacementError, RuntimeError), match="is gone"):
        search_with_optuna(None, subject, StudySettings(study=study), RunSettings())
    assert "stop" not in vars(study)
