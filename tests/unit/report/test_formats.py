"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.report.formats import brief_count_text, count_text, score_text, seconds_text


@pytest.mark.parametrize(
    ("count", "whole", "brief"),
    [
        (0, "0", "0"),
        (999, "999", "999"),
        (999.6, "1,000", "1k"),
        (1_000, "1,000", "1k"),
        (288_600, "288,600", "289k"),
        (999_499, "999,499", "999k"),
        (999_500, "999,500", "1M"),
        (1_100_000, "1,100,000", "1.1M"),
        (999_499_999, "999,499,999", "999M"),
        (12_345_678_901, "12,345,678,901", "12,346M"),
    ],
)
def test_counts(count, whole, brief):
    assert (count_text(count), brief_count_text(count)) == (whole, brief)


@given(st.integers(0, 10**9 - 500_001))
def test_a_brief_count_has_five_letters_at_most_and_is_near(count):
    text = brief_count_text(count)
    assert len(text) <= 5
    number, unit = text.rstrip("kM"), text[len(text.rstrip("kM")) :]
    assert float(number) * {"": 1, "k": 1e3, "M": 1e6}[unit] == pytest.approx(count, rel=0.006, abs=0.5)


def test_scores_have_four_digits():
    assert [score_text(score) for score in (0.09123456, 12345.6, -0.5, float("nan"))] == [
        "0.09123",
        "1.235e+04",
        "-0.5",
        "nan",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (0.424, "0.42 s"),
        (0.9949, "0.99 s"),
        (0.995, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.2, "4 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3720.0, "1 h 02 min"),
        (7199.0, "2 h 00 min"),
        (360_000.0, "100 h 00 min"),
    ],
)
def test_durations_never_come_to_60_of_a_unit(seconds, text):
    assert seconds_text(seconds) == text


@given(st.floats(0, 1e6))
def test_a_duration_is_near(seconds):
    words = seconds_text(seconds).split()
    total = sum(
        float(n) * {"s": 1, "min": 60, "h": 3600}[unit] for n, unit in zip(words[::2], words[1::2], strict=True)
    )
    assert total == pytest.approx(seconds, rel=0.01, abs=0.051)
