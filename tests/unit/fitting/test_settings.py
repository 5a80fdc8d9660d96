"""Settings of ``fit``: what they check together, and what they mean."""

from __future__ import annotations

import pytest

from dask_train.fitting.settings import EpochSettings, KerasSettings
from dask_train.report.fit_progress import EpochLines, FitDisplay


@pytest.mark.parametrize(
    ("verbose", "progress", "kind"),
    [
        (2, True, EpochLines),
        (2, False, FitDisplay),
        (2, None, FitDisplay),
        (1, True, FitDisplay),
        (0, False, FitDisplay),
        ("auto", None, FitDisplay),
    ],
)
def test_lines_are_for_who_asked_for_them_and_are_shown(verbose, progress, kind):
    assert isinstance(EpochSettings(verbose=verbose).display(progress), kind)


def test_batches_have_the_rows_of_keras_unless_it_is_said_otherwise():
    assert EpochSettings().of_task["batch_size"] == EpochSettings().of_task["validation_batch_size"] == 32
    task = EpochSettings(batch_size=8, validation_batch_size=3).of_task
    assert (task["batch_size"], task["validation_batch_size"]) == (8, 3)


@pytest.mark.parametrize("initial_epoch", [-1, 4, True, "1"])
def test_an_epoch_to_begin_with_that_can_not_be_is_refused(initial_epoch):
    with pytest.raises(ValueError, match=f"initial_epoch is {initial_epoch!r}; it is a whole number"):
        KerasSettings(epochs=3, initial_epoch=initial_epoch)
    assert KerasSettings(epochs=3, initial_epoch=3).initial_epoch == 3


@pytest.mark.parametrize("every", [0, True, "2", [1, 0], 1.5])
def test_a_validation_comes_every_so_many_epochs_or_after_those_listed(every):
    with pytest.raises(ValueError, match=r"validation_freq is .*; it is a whole number of epochs, or a list"):
        EpochSettings(validation_freq=every)


@pytest.mark.parametrize("every", [[1, 3], (1, 3), range(1, 4, 2)])
def test_epochs_to_validate_are_a_list_as_keras_takes_it(every):
    assert EpochSettings(validation_freq=every).validation_freq == [1, 3]
    assert type(EpochSettings(validation_freq=every).of_task["validation_freq"]) is list
    assert EpochSettings(validation_freq=2).validation_freq == 2
