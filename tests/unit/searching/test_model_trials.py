"""What a role process of a search does with a trial: what it reports, keeps and listens to; without Keras."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.errors import ClosedError, StalledError
from dask_train.searching.model_trials import ModelTrials, TrialSession
from dask_train.searching.worker import EndTrial, NoMetricError, TrialRequest


class Session:
    """What a trial asks of one; ``words`` are what the client sends."""

    size = 1

    def __init__(self, *words, stops=False):
        self.words, self.stops = list(words), stops
        self.scores, self.notices, self.opened = [], [], []

    def report(self, **scores):
        self.scores.append(scores)

    def notice(self, text):
        self.notices.append(text)

    def dataset(self, name):
        self.opened.append(name)
        return SimpleNamespace(name=name)

    def receive(self, timeout_s=None):
        if not self.words:
            raise StalledError("none")
        word = self.words.pop(0)
        if isinstance(word, Exception):
            raise word
        return word

    def should_stop(self):
        return self.stops


def request(**more):
    return TrialRequest(
        **{
            "number": 7,
            "work": None,
            "metric": "val_loss",
            "mode": "min",
            "to_beat": None,
            **more,
        }
    )


def trial(*words, stops=False, held=None, told=None, **more):
    session = Session(*words, stops=stops)
    found = TrialSession(session, request(**more), {}, {} if held is None else held, told)
    found._parts = lambda: f"after {found.best.epoch}"
    return found, session


def test_scores_carry_the_number_of_the_trial():
    found, session = trial()
    found.report(epoch=0, loss=1.0, val_loss=2.0)
    assert session.scores == [{"trial": 7, "epoch": 0, "loss": 1.0, "val_loss": 2.0}]


def test_the_best_epoch_is_that_of_whole_epochs():
    found, _ = trial()
    for epoch, value in enumerate([3.0, 1.0, 2.0]):
        found.report(epoch=epoch, step=5, loss=0.1, val_loss=0.0)  # in the middle of it
        found.report(epoch=epoch, loss=0.5, val_loss=value)
    assert (found.best.value, found.best.epoch, found.best.parts) == (1.0, 1, "after 1")


def test_steps_of_a_fit_without_epochs_are_those_of_one_epoch():
    found, session = trial()
    found.report(step=1, loss=0.5)
    assert session.scores == [{"trial": 7, "epoch": 0, "step": 1, "loss": 0.5}]
    assert found.best.value is None


def test_rounds_count_as_epochs_from_0():
    found, session = trial()
    for number, value in enumerate([3.0, 1.0, 2.0], start=1):
        found.report(round=number, val_loss=value)
    assert session.scores[-1] == {"trial": 7, "epoch": 2, "val_loss": 2.0}
    assert (found.best.value, found.best.epoch) == (1.0, 1)


@pytest.mark.parametrize(("to_beat", "parts"), [(None, "header as of 1"), (0.5, None)])
def test_a_model_that_has_those_of_all_epochs_is_asked_in_the_end_for_that_of_the_best(to_beat, parts):
    class Trees:
        ends_with_all = True

        def __call__(self, session, shown):
            shown(SimpleNamespace(is_as_scored=lambda: True))
            for number, value in enumerate([3.0, 1.0, 2.0], start=1):
                session.report(round=number, val_loss=value)
            return SimpleNamespace(header="header", warnings=[])

        def as_of(self, outcome, epoch):
            return f"{outcome.header} as of {epoch}"

        def forget(self):
            pass

    done = ModelTrials(Session()).work(request(work=Trees(), to_beat=to_beat))
    assert (done.value, done.epoch, done.parts) == (1.0, 1, parts)


@pytest.mark.parametrize(("mode", "to_beat", "kept"), [("min", 0.5, None), ("min", 2.0, "after 0"), ("max", 1.0, None)])
def test_weights_are_kept_of_what_beats_the_others_only(mode, to_beat, kept):
    found, _ = trial(mode=mode, to_beat=to_beat)
    found.report(epoch=0, loss=1.0, val_loss=1.0)
    assert (found.best.value, found.best.parts) == (1.0, kept)


def test_an_epoch_whose_weights_callbacks_have_changed_since_is_not_the_best_one():
    found, session = trial()
    is_as_scored = iter([True, False, True])
    found.watch(SimpleNamespace(is_as_scored=lambda: next(is_as_scored)))
    for epoch, value in enumerate([3.0, 1.0, 4.0, 2.0]):  # the third one is not looked at
        found.report(epoch=epoch, loss=0.5, val_loss=value)
    assert found._loop.watched_score == "val_loss"
    assert (found.best.value, found.best.epoch, found.best.parts) == (2.0, 3, "after 3")
    (notice,) = session.notices
    assert "other weights in the model than 'val_loss' is of" in notice


def test_a_trial_of_which_no_epoch_counts_fails_in_words():
    class Sets:
        ends_with_all = False

        def __call__(self, session, shown):
            shown(SimpleNamespace(is_as_scored=lambda: False))
            session.report(epoch=0, val_loss=1.0)
            return SimpleNamespace(warnings=[])

        def forget(self):
            pass

    with pytest.raises(ValueError, match=r"no model has that score.* SwapEMAWeights has swap_on_epoch=True"):
        ModelTrials(Session()).work(request(work=Sets()))


@pytest.mark.parametrize(
    ("scores", "error", "told"),
    [
        ({"loss": float("nan"), "val_loss": 1.0}, FloatingPointError, "The loss is nan in epoch 3"),
        ({"loss": float("inf"), "step": 4}, FloatingPointError, "The loss is inf in epoch 3"),
        ({"loss": 1.0, "val_loss": float("nan")}, FloatingPointError, "val_loss is not a number after epoch 3"),
        (
            {"loss": 1.0, "accuracy": 0.5, "num_steps": 3},
            NoMetricError,
            "no score 'val_loss' .* there are loss, accuracy",
        ),
    ],
)
def test_scores_that_end_a_trial_are_reported_first(scores, error, told):
    found, session = trial()
    with pytest.raises(error, match=told):
        found.report(epoch=2, **scores)
    assert len(session.scores) == 1


def test_an_epoch_that_was_cut_short_counts_for_nothing():
    found, _ = trial(EndTrial(number=7))
    assert found.should_stop()
    found.report(epoch=0, loss=1.0)  # it has not been validated
    assert found.best.value is None


def test_it_listens_to_its_own_end_alone():
    found, session = trial(EndTrial(number=6), "something else")
    assert not found.should_stop()
    assert session.words == []
    session.words.append(EndTrial(number=7))
    assert found.should_stop()
    assert found.should_stop(), "for good"


@pytest.mark.parametrize("how", ["its client has closed", "the run stops"])
def test_it_ends_with_the_run(how):
    found, _ = trial(ClosedError("over")) if how == "its client has closed" else trial(stops=True)
    assert found.should_stop()


def test_notices_are_told_once_in_the_process():
    told = set()
    first, one = trial(told=told)
    second, other = trial(told=told)
    for each in (first, first, second):
        each.notice("it has no GPU")
    assert (one.notices, other.notices) == (["it has no GPU"], [])


def test_data_sets_stay_open_for_the_next_trial():
    held = {}
    first, one = trial(held=held)
    second, other = trial(held=held)
    assert first.dataset("test") is first.dataset("test") is second.dataset("test")
    assert (one.opened, other.opened) == (["test"], [])


def test_all_else_is_the_sessions():
    found, _ = trial()
    assert found.size == 1


def test_it_goes_on_from_an_earlier_start():
    found, _ = trial(to_beat=0.5)
    found.best.go_on({0: 0.9, 1: 0.2, 2: 0.4}, {"weights": 1})
    assert (found.best.value, found.best.epoch) == (0.2, 1)
    assert found.best.parts == {"weights": 1}
    found, _ = trial(to_beat=0.1)
    found.best.go_on({0: 0.9, 1: 0.2}, {})
    assert (found.best.value, found.best.parts) == (0.2, None)
    found.best.go_on({}, None)
    assert found.best.epoch == 1
