"""Figures in a line that is no wider than a terminal."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dask_train.report.fitted import LineField, Wording, fitted


def joined(fields):
    return " · ".join(field.text for field in fields)


FIELDS = [
    LineField(rank=0, text="training", brief="training"),
    LineField(rank=3, text="1,100,000 rows trained", brief="1.1M rows"),
    LineField(rank=1, text="score 0.0912", brief="0.0912"),
    LineField(rank=2, text="12 s", brief="12 s"),
]


def texts(width):
    return [field.text for field in fitted(FIELDS, width, joined)]


def test_all_that_fits_stays_as_it_is():
    assert texts(len(joined(FIELDS))) == [field.text for field in FIELDS]


def test_first_all_get_brief_and_then_the_least_important_go():
    brief = ["training", "1.1M rows", "0.0912", "12 s"]
    assert texts(len(joined(FIELDS)) - 1) == brief
    assert texts(len(" · ".join(brief))) == brief
    assert texts(len(" · ".join(brief)) - 1) == ["training", "0.0912", "12 s"]
    assert texts(17) == ["training", "0.0912"]
    assert texts(16) == ["training"]


def test_the_first_stays_even_where_it_is_too_wide():
    assert texts(1) == ["training"]


def test_letters_of_two_columns_count_twice():
    wide = [LineField(rank=0, text="ab", brief="ab"), LineField(rank=1, text="訓練", brief="訓練")]
    assert len(fitted(wide, 9, joined)) == 2
    assert len(fitted(wide, 8, joined)) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=9), st.text(max_size=5)), min_size=1), st.integers(1, 99))
def test_it_fits_or_is_one_and_the_order_stays(given_fields, width):
    fields = [LineField(rank=rank, text=text, brief=brief) for rank, text, brief in given_fields]
    left = fitted(fields, width, joined)
    assert len(left) == 1 or cell_len(joined(left)) <= width
    ranks = iter(field.rank for field in fields)
    assert all(field.rank in ranks for field in left)


def test_what_a_file_can_not_take_is_replaced():
    ascii_only = Wording(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert ascii_only.writable("größe\r\x1b[2K") == "gr??e  [2K"
    assert ascii_only.joined(FIELDS[2:]) == "score 0.0912 | 12 s"
    assert Wording(io.StringIO()).joined(FIELDS[2:]) == "score 0.0912 · 12 s"
