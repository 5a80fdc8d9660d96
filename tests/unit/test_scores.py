"""What a reported score has: its values, and where it was made."""

from __future__ import annotations

from dask_train import scores
from dask_train.dashboard import traces


def test_the_values_of_a_score_are_its_numbers_that_tell_no_place():
    told = {"role": "worker", "rank": 0, "epoch": 3, "step": 7, "loss": 0.5, "n": 2, "best": True, "name": "x"}
    assert scores.values_of({**told, "round": 4, "trial": 1}) == {"loss": 0.5, "n": 2.0}


def test_the_dashboard_which_is_sent_alone_finds_scores_at_the_same_places():
    assert (traces.STEPS, traces.PLACE) == (scores.AXES, scores.PLACE)
