"""The main job as it is shown and recorded; the network, the data set and the training are stand-ins."""

from __future__ import annotations

import io
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.demo import main_job
from dask_train.demo.live import LiveLine
from dask_train.demo.main_job import MainJob, run_main_job
from dask_train.demo.pipeline import DemoOutcome, DemoSettings
from dask_train.errors import RoleFailedError
from dask_train.extras import MissingPackageError

SETTINGS = DemoSettings(ps=1, workers=2, copies=2)
LAST_TEST = {"step": 30.0, "test_loss": 0.25, "test_accuracy": 0.914}


class Line(LiveLine):
    """Keeps what it is told, besides writing it."""

    def __init__(self):
        self.told, self.done, self.written, self.threads = [], [], io.StringIO(), []
        self.from_elsewhere = threading.Event()
        super().__init__(self.written)

    def update(self, progress):
        self.told.append(progress)
        if threading.current_thread() is not threading.main_thread():
            self.from_elsewhere.set()
        super().update(progress)

    def phase_done(self, name, seconds, detail=""):
        self.done.append((name, detail))
        super().phase_done(name, seconds, detail)


def outcome(**changes):
    """Of two workers of which each trained for a second, and a score that reached the target."""
    now = time.time()
    spans = [("training", now - 1, now)]
    known = {
        "good_enough": True,
        "seconds": 2.0,
        "passes": 1,
        "scores": [{"loss": 0.5, "accuracy": 0.8, "step": 10, "time": now}],
        "roles": {
            "ps": [{"spans": [("serving", now - 1, now)]}],
            "worker": [{"rows": 1000, "spans": spans}, {"rows": 2000, "spans": []}],
            "scorer": [{"spans": []}],
        },
        "test": LAST_TEST,
    }
    return DemoOutcome(**known | changes)


@pytest.fixture
def parts(monkeypatch):
    """What the job is made of: it notes the order, and fails where it is told to."""
    made = SimpleNamespace(order=[], fails=None, outcome=outcome(), boards=None)

    class Prepared:
        def rows_ready(self):
            return 77

        def release(self):
            made.order.append("released")

    class Network:
        dask_spec = SimpleNamespace(
            tasks=lambda: [("ps", 0, "tcp://h:1"), ("worker", 0, "tcp://h:2"), ("worker", 1, "tcp://h:3")]
        )

        def __enter__(self):
            return self

        def __exit__(self, *_):
            made.order.append("closed")

    def prepare(client, settings, tick):
        made.order.append("prepared")
        tick(Prepared())
        return Prepared()

    def raised(client, **asked):
        made.order.append(f"raised {asked}")
        return Network()

    def train(net, prepared, settings, tick):
        if made.boards is not None:
            tick(made.boards)
        if made.fails:
            raise made.fails
        return made.outcome

    monkeypatch.setattr(main_job, "prepare", prepare)
    monkeypatch.setattr(main_job, "pictures", lambda prepared: {"mean": np.zeros((28, 28), np.float32)})
    monkeypatch.setattr(main_job, "start_tensorflow", raised)
    monkeypatch.setattr(main_job, "train_until_good_enough", train)
    return made


def test_phases_follow_each_other_and_are_shown_and_recorded(parts):
    line = Line()
    found, record = MainJob(SETTINGS, line).run(None, keep_cluster=True)
    assert found is parts.outcome
    assert [name for name, _ in line.done] == ["prepared", "drawn", "raised", "trained"]
    assert line.done[0] == ("prepared", "110,000 rows of 2 x MNIST")
    assert line.done[2] == ("raised", "ps=1, worker=2, scorer=1")
    assert [span.name for span in record.phases] == ["preparing", "drawing", "raising", "training"]
    ends = [at for span in record.phases for at in (span.start_s, span.end_s)]
    assert ends == sorted(ends)
    assert ends[0] >= 0
    assert {each.rows_prepared for each in line.told if each.phase == "training"} == {77}
    assert parts.order == [
        "prepared",
        "raised {'ps': 1, 'worker': 2, 'scorer': 1, 'queue_size': 2}",
        "released",
        "closed",
    ]


def test_a_cluster_that_ends_now_takes_its_network_with_it(parts):
    MainJob(SETTINGS, Line()).run(None, keep_cluster=False)
    assert parts.order[-1] == "released"


def test_a_training_that_fails_leaves_no_data_and_no_network_on_a_cluster_that_stays(parts):
    parts.fails = RoleFailedError("worker 1 raised.")
    line = Line()
    before = threading.active_count()
    with pytest.raises(RoleFailedError, match="worker 1 raised"):
        MainJob(SETTINGS, line).run(None, keep_cluster=True)
    assert parts.order[-2:] == ["released", "closed"]
    assert [name for name, _ in line.done] == ["prepared", "drawn", "raised"], "the training is not done"
    assert threading.active_count() == before, "nobody keeps the time any more"


def test_seconds_go_by_where_nothing_else_is_told():
    line = Line()
    job = MainJob(SETTINGS, line)
    with job.phase("starting", "started", "here"):
        assert line.from_elsewhere.wait(60)
    assert line.told[-1].phase == "starting"
    assert line.told[-1].elapsed_s > line.told[0].elapsed_s


def test_rows_are_those_of_all_workers_and_their_rate_that_of_the_last_seconds(parts):
    now = time.time()
    progress = [
        {"worker": 0, "rows": 100, "time": now - 60},  # long ago
        {"worker": 0, "rows": 1000, "time": now - 4},
        {"worker": 1, "rows": 500, "time": now - 3},
        {"worker": 0, "rows": 1200, "time": now - 2},
        {"worker": 1, "rows": 800, "time": now - 2},
    ]
    parts.boards = SimpleNamespace(progress=progress, scores=[{"loss": 0.9}, {"loss": 0.4}])
    line = Line()
    MainJob(SETTINGS, line).run(None, keep_cluster=False)
    told = next(each for each in line.told if each.rows_trained)
    assert (told.rows_trained, told.score, told.target, told.rows_total) == (2000, 0.4, 0.08, 110_000)
    assert told.rows_per_s == pytest.approx(200 / 2 + 300 / 1)


def test_before_the_first_score_and_step_there_is_nothing_to_show(parts):
    parts.boards = SimpleNamespace(progress=[{"worker": 0, "rows": 10, "time": time.time()}], scores=[])
    line = Line()
    MainJob(SETTINGS, line).run(None, keep_cluster=False)
    told = next(each for each in line.told if each.rows_trained)
    assert (told.rows_trained, told.rows_per_s, told.score) == (10, 0.0, None)


def test_the_record_has_what_each_role_did(parts):
    _, record = MainJob(SETTINGS, Line()).run(None, keep_cluster=False)
    assert [(role.role, role.rank, role.address) for role in record.roles] == [
        ("ps", 0, "tcp://h:1"),
        ("worker", 0, "tcp://h:2"),
        ("worker", 1, "tcp://h:3"),
    ]
    assert [span.name for span in record.roles[1].spans] == ["training"]
    assert record.roles[1].spans[0].duration_s == pytest.approx(1.0)
    assert record.roles[2].spans == ()
    (score,) = record.scores
    assert (score.loss, score.accuracy, score.step, score.rows_trained) == (0.5, 0.8, 10, 1000)
    assert list(record.pictures) == ["mean"]


def test_of_synchronous_steps_nobody_knows_how_many_rows_they_were(parts):
    settings = DemoSettings(ps=1, workers=2, copies=2, sync=True)
    _, record = MainJob(settings, Line()).run(None, keep_cluster=False)
    assert [score.rows_trained for score in record.scores] == [None]
    assert dict(record.summary)["training"] == "synchronous"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_scores_of_a_training_that_diverged_are_left_out(parts, loss):
    scores = [*parts.outcome.scores, {"loss": loss, "accuracy": 0.1, "step": 20, "time": time.time()}]
    parts.outcome = outcome(scores=scores, good_enough=False)
    _, record = MainJob(SETTINGS, Line()).run(None, keep_cluster=False)
    assert [score.loss for score in record.scores] == [0.5]
    assert dict(record.summary)["target"] == "0.08 not reached"


def test_the_summary_is_in_words_and_ends_with_the_score(parts):
    _, record = MainJob(SETTINGS, Line()).run(None, keep_cluster=False)
    told = dict(record.summary)
    assert told["rows prepared"] == "110,000"
    assert told["rows trained"] == "3,000"
    assert told["rows trained a second"] == "1,500"
    assert told["passes over the data"] == "0.03"
    assert told["steps"] == "30"
    assert told["validation cross-entropy"] == "0.5000"
    assert told["target"] == "0.08 reached"
    assert told["test cross-entropy"] == "0.2500"
    assert {"seconds: preparing", "seconds: training"} <= told.keys()
    assert record.summary[-1] == ("test accuracy", "91.4%")


def test_without_a_score_the_summary_says_so(parts):
    parts.outcome = outcome(scores=[], good_enough=False)
    _, record = MainJob(SETTINGS, Line()).run(None, keep_cluster=False)
    assert dict(record.summary)["validation cross-entropy"] == "none"


@pytest.fixture
def clusters(monkeypatch):
    """Which clusters were asked for, and which are still there."""
    made = SimpleNamespace(asked=[], open=[])

    @contextmanager
    def a_client(*asked, **more):
        made.asked.append((*asked, more))
        made.open.append(asked)
        try:
            yield "client"
        finally:
            made.open.remove(asked)

    monkeypatch.setattr(main_job, "local_client", a_client)
    monkeypatch.setattr(main_job, "Client", a_client)
    return made


def test_a_cluster_of_its_own_has_a_process_for_each_task_and_ends_before_the_report(parts, clusters, tmp_path):
    line, page = Line(), tmp_path / "page.html"
    found, record = run_main_job(SETTINGS, scheduler=None, report=page, line=line)
    ((num_workers, settings),) = clusters.asked
    assert (num_workers, settings["memory_limit"], clusters.open) == (4, 0, [])
    assert line.done[0] == ("started", "4 local processes")
    assert parts.order[-1] == "released", "the network goes with the cluster"
    assert (found, record.phases[0].name) == (parts.outcome, "starting")
    assert "91.4%" in page.read_text()


def test_a_cluster_that_is_there_is_used_and_left_without_the_network(parts, clusters, tmp_path):
    line = Line()
    run_main_job(SETTINGS, scheduler="tcp://h:8786", report=tmp_path / "page.html", line=line)
    assert clusters.asked == [("tcp://h:8786", {})]
    assert line.done[0] == ("started", "tcp://h:8786")
    assert parts.order[-1] == "closed"


@pytest.mark.parametrize("package", ["matplotlib", "tensorflow"])
def test_what_is_not_installed_is_told_before_anything_starts(parts, clusters, package, monkeypatch, tmp_path):
    monkeypatch.setattr("dask_train.extras.find_spec", lambda name: None if name == package else "found")
    line = Line()
    with pytest.raises(MissingPackageError, match=f"needs {package}, which is not installed: pip install"):
        run_main_job(SETTINGS, scheduler=None, report=tmp_path / "page.html", line=line)
    assert (clusters.asked, parts.order, line.told, list(tmp_path.iterdir())) == ([], [], [], [])


def test_a_run_that_fails_leaves_no_cluster_and_no_report(parts, clusters, tmp_path):
    parts.fails = RoleFailedError("worker 1 raised.")
    with pytest.raises(RoleFailedError):
        run_main_job(SETTINGS, scheduler=None, report=tmp_path / "page.html", line=Line())
    assert (clusters.open, list(tmp_path.iterdir())) == ([], [])
