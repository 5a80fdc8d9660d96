"""The page of a run: whole, escaped, self-contained, and drawn without touching matplotlib's settings."""

from __future__ import annotations

import base64
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from dask_train.report import html
from dask_train.report.record import RoleTimeline, RunRecord, Score, Span

VOID = {"meta", "img", "br", "hr", "link", "input"}
REFERENCES = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Collects what a browser would read; fails on a tag that isn't closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open_tags and self.open_tags[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def make_record(num_scores: int = 40, **changes: Any) -> RunRecord:
    def span(name: str, start_s: float, end_s: float) -> Span:
        return Span(name=name, start_s=start_s, end_s=end_s)

    scores = tuple(
        Score(time_s=10 + n, loss=2.3 * math.exp(-0.08 * n), accuracy=1 - 0.9 / (n + 1), step=n * 200, rows_trained=n)
        for n in range(num_scores)
    )
    workers = tuple(
        RoleTimeline(
            role="worker", rank=rank, address=f"tcp://127.0.0.1:{3121 + rank}", spans=(span("train", 9 + rank, 55),)
        )
        for rank in range(4)
    )
    ps = RoleTimeline(role="ps", rank=0, address="tcp://127.0.0.1:40123", spans=(span("serve", 8, 56),))
    plain = {
        "title": "MNIST on Dask",
        "target_loss": 0.15,
        "scores": scores,
        "phases": (span("prepare", 0, 8), span("teach", 8, 56)),
        "roles": (ps, *workers),
        "pictures": {"one image": np.eye(28), "mean": np.full((28, 28), 0.3)},
        "summary": (("optimizer", "Adam"), ("rows", "1,100,000")),
        "machine": "2 cores",
    }
    return RunRecord(**{**plain, **changes})


@pytest.fixture(scope="module")
def text() -> str:
    return html.page_of(make_record())


def labels(page: Page) -> list[str]:
    return [attributes["aria-label"] or "" for _, attributes in page.tags if "aria-label" in attributes]


def test_page_says_all_that_is_in_the_record(text: str) -> None:
    page = Page(text)
    for role in make_record().roles:
        assert role.label in page.text
    for words in ("MNIST on Dask", "optimizer Adam", "rows 1,100,000", "prepare", "teach", "one image", "2 cores"):
        assert words in page.text
    assert "Target loss 0.15 reached after 45.0 s" in page.text
    assert "All 40 scores as a table" in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == 2
    assert sum(tag == "img" for tag, _ in page.tags) == 2


def test_every_picture_and_drawing_has_words_instead(text: str) -> None:
    page = Page(text)
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert all(attributes.get("aria-hidden") == "true" for tag, attributes in page.tags if tag == "svg")
    assert any(label.startswith("Loss over seconds: 40 scores, from 2.3 at 10.0 s to") for label in labels(page))
    assert any(label.startswith("Accuracy over seconds: 40 scores, from 10.00%") for label in labels(page))
    assert "serve: 48.0 s, from 8.0 s to 56.0 s" in labels(page)


def test_page_needs_nothing_from_outside(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name in REFERENCES & attributes.keys():
            value = attributes[name] or ""
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert all(reference.startswith("#") for reference in re.findall(r"url\(([^)]*)\)", text))
    policy = next(a["content"] or "" for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_found(text: str) -> None:
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {a["xlink:href"] for _, a in page.tags if "xlink:href" in a} | set(re.findall(r"url\(([^)]*)\)", text))
    assert used <= {f"#{name}" for name in ids}


def test_the_page_shows_no_secrets() -> None:
    url = "https://u:hunter2@h/x?a=1&sig=hunter2"
    text = html.page_of(make_record(title=url, summary=((url, url),), machine=url))
    assert "hunter2" not in text
    assert text.count("https://***@h/x?a=1") >= 4


def test_all_words_of_the_record_are_escaped() -> None:
    evil = "<script>alert('x')</script>\"&"
    span = Span(name=evil, start_s=0, end_s=1)
    record = make_record(
        title=evil,
        summary=((evil, evil),),
        machine=evil,
        phases=(span,),
        roles=(RoleTimeline(role=evil, rank=0, address=evil, spans=(span,)),),
        pictures={evil: np.eye(3)},
    )
    text = html.page_of(record)
    assert "<script" not in text
    page = Page(text)
    assert page.text.count(evil) >= 9
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_target_is_drawn_where_there_is_one(text: str) -> None:
    assert "stroke: var(--target)" in text
    assert "var(--target)" not in html.page_of(make_record(target_loss=None)).partition("<body>")[2]


def test_curves_take_the_colours_of_the_page(text: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert not re.findall(r"(?:fill|stroke): #", drawings)  # a fixed colour would be lost in light or in dark


def test_bars_are_where_their_spans_are() -> None:
    span = Span(name="train", start_s=25, end_s=75)
    whole = Span(name="all", start_s=0, end_s=100)
    role = RoleTimeline(role="worker", rank=0, address="", spans=(span,))
    page = Page(html.page_of(make_record(num_scores=0, phases=(whole,), roles=(role,))))
    bars = {a["aria-label"]: a["style"] for _, a in page.tags if str(a.get("class")).startswith("bar ")}
    assert bars["train: 50.0 s, from 25.0 s to 75.0 s"] == "left:25.0%;width:50.0%"


@pytest.mark.parametrize("num_spans", [7, 8, 15])
def test_more_span_names_than_colours_stay_apart(num_spans: int) -> None:
    spans = tuple(Span(name=f"part {n}", start_s=n, end_s=n + 1) for n in range(num_spans))
    record = make_record(roles=(RoleTimeline(role="worker", rank=0, address="", spans=spans),), phases=())
    looks = [a["class"] for _, a in Page(html.page_of(record)).tags if str(a.get("class")).startswith("bar ")]
    assert len(looks) == num_spans
    assert len(set(looks)) == min(num_spans, 14)


@pytest.mark.parametrize("target_loss", [None, 0.1])
def test_no_scores_yet(target_loss: float | None) -> None:
    page = Page(html.page_of(make_record(num_scores=0, target_loss=target_loss)))
    assert page.text.count("No scores yet") == 3  # the verdict and both curves
    assert all(tag != "svg" for tag, _ in page.tags)


def test_record_of_nothing() -> None:
    page = Page(html.page_of(make_record(num_scores=0, phases=(), roles=(), pictures={}, summary=(), machine="")))
    assert "No roles were recorded" in page.text
    assert "No phases were recorded" in page.text
    role = RoleTimeline(role="ps", rank=0, address="", spans=(Span(name="start", start_s=0, end_s=0),))
    assert "ps 0" in Page(html.page_of(make_record(num_scores=0, phases=(), roles=(role,)))).text


def test_one_score() -> None:
    page = Page(html.page_of(make_record(num_scores=1)))
    assert any(label == "Loss over seconds: one score, 2.3 at 10.0 s. The target is 0.15." for label in labels(page))
    assert "Target loss 0.15 not reached: the lowest was 2.3" in page.text
    assert "The score as a table" in page.text


def test_scores_without_accuracy_or_target() -> None:
    scores = tuple(replace(score, accuracy=None) for score in make_record().scores)
    page = Page(html.page_of(make_record(scores=scores, target_loss=None)))
    assert "No accuracy was reported" in page.text
    assert "Lowest loss 0.1016 after 49.0 s" in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == 1


@pytest.mark.parametrize(
    "points",
    [
        [(0.0, 0.0)],
        [(5.0, 1.0), (5.0, 1.0)],
        [(5.0, -1.0), (6.0, -3.0)],
        [(0.0, 1e-9), (1.0, 1e9)],
        [(1e6, 1.0), (1e6 + 1, 1.01)],
    ],
)
def test_axes_hold_odd_scores(points: list[tuple[float, float]]) -> None:
    scores = tuple(Score(time_s=t, loss=loss, accuracy=0.0, step=None, rows_trained=None) for t, loss in points)
    for target_loss in (None, 0.1):
        Page(html.page_of(make_record(scores=scores, target_loss=target_loss)))


def test_long_tables_are_thinned_and_say_so() -> None:
    page = Page(html.page_of(make_record(num_scores=1001)))
    assert "168 of 1,001 scores, evenly picked as a table" in page.text
    assert sum(tag == "tr" for tag, _ in page.tags) == 2 + 1 + 168  # the summary, the head, the scores


def test_pictures_are_their_pixels(text: str) -> None:
    from io import BytesIO

    from matplotlib.image import imread

    source = next(a["src"] or "" for tag, a in Page(text).tags if tag == "img")
    pixels = imread(BytesIO(base64.b64decode(source.partition(",")[2])))
    assert (pixels[:, :, 0] == np.eye(28)).all()


def test_written_file_is_the_page(tmp_path: Path) -> None:
    path = html.write_report(make_record(), tmp_path / "run.html")
    assert path == tmp_path / "run.html"
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


def test_failed_rendering_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.html"
    path.write_text("the old page")
    monkeypatch.setattr(html, "accuracy_curve", lambda scores: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        html.write_report(make_record(), path)
    assert path.read_text() == "the old page"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.html"
    path.write_text("the old page")

    def fail(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        html.write_report(make_record(num_scores=0), path)
    assert path.read_text() == "the old page"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist\. Make it"):
        html.write_report(make_record(num_scores=0), tmp_path / "nowhere" / "run.html")


def test_users_matplotlib_settings_are_neither_changed_nor_used(text: str) -> None:
    def without_random_ids(page: str) -> str:
        return re.sub(r"-[mp][0-9a-f]{10}\b", "-id", page)

    with mpl.rc_context({"axes.facecolor": "red", "font.size": 40, "text.usetex": True, "savefig.bbox": "tight"}):
        before = dict.copy(mpl.rcParams)
        assert without_random_ids(html.page_of(make_record())) == without_random_ids(text)
        assert dict.copy(mpl.rcParams) == before


def test_no_pyplot_no_framework_and_matplotlib_only_to_draw() -> None:
    program = (
        "import sys, dask_train\n"
        "before = set(sys.modules)\n"
        "import dask_train.report as report, dask_train.report.html as html\n"
        "unwanted = {'matplotlib', 'dask', 'distributed', 'tensorflow', 'torch'} & (sys.modules.keys() - before)\n"
        "assert not unwanted, unwanted\n"
        "none = dict(title='t', target_loss=None, phases=(), roles=(), pictures={}, summary=(), machine='')\n"
        "score = report.Score(time_s=1, loss=1, accuracy=1, step=None, rows_trained=None)\n"
        "html.page_of(report.RunRecord(scores=(score,), **none))\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
