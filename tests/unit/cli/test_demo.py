"""What ``dask train demo`` makes of its words, and how it ends; the main job itself is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dask_train.cli import train
from dask_train.demo import main_job
from dask_train.errors import RoleLostError
from dask_train.extras import MissingPackageError

SUMMARY = (("rows prepared", "1,100,000"), ("target", "0.08 reached"), ("test accuracy", "97.1%"))


class Job:
    """What the main job was asked for, and what it comes to."""

    def __init__(self):
        self.asked, self.good_enough, self.error = [], True, None

    def __call__(self, settings, **more):
        self.asked.append((settings, more))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(good_enough=self.good_enough), SimpleNamespace(summary=SUMMARY)


@pytest.fixture
def job(monkeypatch):
    made = Job()
    monkeypatch.setattr(main_job, "run_main_job", made)
    return made


def demo(*words):
    return CliRunner().invoke(train, ["demo", *map(str, words)])


def plain(output):
    return " ".join(output.replace("│", " ").split())


def test_by_default_a_local_cluster_trains_four_workers(job):
    assert demo().exit_code == 0
    ((settings, more),) = job.asked
    assert (settings.ps, settings.workers, settings.copies, settings.sync) == (1, 4, 20, False)
    assert (more["scheduler"], str(more["report"])) == (None, "report.html")


def test_options_as_settings(job, tmp_path):
    page = tmp_path / "page.html"
    words = "--ps 2 --workers 3 --copies 5 --target 0.5 --max-seconds 7.5 --sync --scheduler tcp://h:1 --report"
    assert demo(*words.split(), page).exit_code == 0
    ((settings, more),) = job.asked
    found = (settings.ps, settings.workers, settings.copies, settings.target, settings.max_seconds, settings.sync)
    assert found == (2, 3, 5, 0.5, 7.5, True)
    assert (more["scheduler"], more["report"]) == ("tcp://h:1", page)


def test_the_summary_is_a_table_that_ends_with_the_report_and_the_score(job, tmp_path):
    ended = demo("--report", tmp_path / "page.html")
    assert ended.output.splitlines() == [
        "",
        "rows prepared  1,100,000",
        "target         0.08 reached",
        f"report         {tmp_path / 'page.html'}",
        "test accuracy: 97.1%",
    ]


def test_a_target_that_was_not_reached_is_no_success(job):
    job.good_enough = False
    ended = demo("--target", "0.001", "--max-seconds", "2")
    assert ended.exit_code == 1
    assert ended.output.splitlines()[-1] == "The target of 0.001 was not reached within 2 s."


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "Interrupted; everything that was started has ended."),
        (RoleLostError("worker 2 is gone."), 1, "worker 2 is gone."),
        (MissingPackageError("The demo needs tensorflow."), 1, "The demo needs tensorflow."),
    ],
)
def test_how_it_ends_otherwise(job, error, code, told):
    job.error = error
    ended = demo()
    assert (ended.exit_code, told in plain(ended.output)) == (code, True)
    assert "Traceback" not in ended.output


def test_what_is_an_error_of_its_own_is_shown_as_such(job):
    job.error = ZeroDivisionError("oh")
    assert demo().exception is job.error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ps", "0"], "0 is not in the range x>=1"),
        (["--workers", "0"], "0 is not in the range x>=1"),
        (["--copies", "-1"], "-1 is not in the range x>=1"),
        (["--target", "low"], "'low' is not a valid float"),
        (["--report", "/"], "'/' is a directory"),
        (["--report", "/nowhere/at/all.html"], "The folder /nowhere/at does not exist. Make it, or name another path."),
    ],
)
def test_what_can_not_be_is_refused_before_anything_starts(job, words, told):
    ended = demo(*words)
    assert (ended.exit_code, job.asked) == (2, [])
    assert told in plain(ended.output)
