"""Searches, as the page draws them."""

from __future__ import annotations


def test_a_search_is_seen_with_its_trials(shown):
    shown.run()
    trial = {"search": "s", "number": 0, "metric": "loss", "mode": "min", "params": {"units": 8}}
    shown.note("running", trials=[trial])
    assert shown.data("of trial")["search"] == ["s"]
