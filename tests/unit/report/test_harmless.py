"""Text of others in a terminal."""

from __future__ import annotations

import pytest

from dask_train.report.formats import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.5\tat 3\nend", "loss 0.5\tat 3\nend"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("a\rb\x08c\x7f\x9b31m", r"a\rb\x08c\x7f\x9b31m"),
        ("evil\u202etxt", r"evil\u202etxt"),
        ("K\u00e4fer \u2713", "K\u00e4fer \u2713"),
    ],
)
def test_control_characters_are_seen_and_do_nothing(text, shown):
    assert harmless(text) == shown
