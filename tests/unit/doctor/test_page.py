"""The page of what is wrong with a cluster."""

from __future__ import annotations

import re

from dask_train.doctor.diagnosis import Finding
from dask_train.doctor.page import write_page


def test_all_is_told_whatever_it_says(tmp_path):
    findings = [Finding("bad", f"worker <{number}> & co. are slow", "Change {it}") for number in range(150)]
    rows = [("tcp://a:1", "<b>3.11</b>")] * 150
    path = tmp_path / "page.html"
    path.write_text("what was there before")
    assert write_page("<Cluster> & co", findings, ("process", "Python"), rows, path) == path
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("&lt;Cluster&gt; &amp; co") == 2, "title and heading"
    assert [page.count(text) for text in ("co. are slow", "Change {it}", "tcp://a:1")] == [150] * 3, (
        "no row is left out"
    )
    assert "&lt;b&gt;3.11&lt;/b&gt;" in page
    assert not re.search(r"<(Cluster|\d+|b>3)", page)
    assert not re.search(r"""(src|href)=["']""", page), "it needs no other file"
