"""A wrong argument is an error of the line that passed it."""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dask_train as dt
from dask_train.config import Deadlines
from dask_train.input_errors import raises_at_the_call, warn_at_the_call
from dask_train.linear_model import LinearRegression, LogisticRegression
from dask_train.sklearn import Incremental


def frames(call: Callable[[], Any]) -> list[str]:
    """The names of the functions in the traceback of what is raised, below this one."""
    try:
        call()
    except (TypeError, ValueError, ImportError) as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
    raise AssertionError("nothing was raised")


def wrong_train() -> None:
    dt.train(3, progress="yes")  # type: ignore[call-overload]


def test_our_frames_are_left_out() -> None:
    assert frames(wrong_train) == ["wrong_train"]
    assert frames(lambda: dt.publish_dataset(name="x")) == ["<lambda>"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: dt.Checkpoint("", every_s=-1),
        lambda: dt.Checkpoint("x", evry_s=1),  # type: ignore[call-arg]
        lambda: dt.Patience("val_loss", -1),
        lambda: dt.RecoveryPolicy(scope="all"),  # type: ignore[arg-type]
        lambda: dt.logging.TensorBoard("s3://bucket"),
        lambda: dt.AddressBook(ps=["h:1"]).task_address("worker", 0),
    ],
)
def test_constructors_and_values_raise_at_the_call_too(make: Callable[[], Any]) -> None:
    assert frames(make) == ["<lambda>"]


def test_so_does_what_needs_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert frames(lambda: dt.search(lambda trial: None, np.ones((4, 2)), np.ones(4), metric="loss")) == ["<lambda>"]


def test_so_do_a_session_s_methods() -> None:
    def worker(session: Any) -> list[list[str]]:
        wrong = (
            lambda: session.all_reduce(np.ones(2), op="median"),
            lambda: session.batches(batch_size=0),
            lambda: session.broadcast(np.ones(2), root=5),
        )
        return [frames(each) for each in wrong]

    result = dt.train(worker, roles={"worker": 0}, data=np.ones((4, 2)), progress=False)
    assert result.results["worker"] == [[["<lambda>"]] * 3]


def test_a_class_keeps_its_signature_and_a_class_below_it_its_line() -> None:
    class Often(dt.Patience):
        def __init__(self) -> None:
            super().__init__("loss", -1)

    assert frames(Often) == ["__init__"]
    assert list(signature(dt.Checkpoint).parameters)[:2] == ["url", "every_steps"]


def test_all_frames_are_there_where_they_are_asked_for() -> None:
    with dask.config.set({"train.tracebacks": "whole"}):
        assert frames(wrong_train)[0] == "wrong_train"
        assert len(frames(wrong_train)) > 2


def test_what_code_of_the_users_raises_keeps_its_frames() -> None:
    def build() -> None:
        raise ValueError("no model")

    assert frames(raises_at_the_call(build)) == ["called", "build"]


def test_a_cause_has_the_frames_of_others_alone() -> None:
    with dask.config.set({"train.stop.timeout": "soon"}), pytest.raises(ValueError, match="no duration") as caught:
        raises_at_the_call(Deadlines.from_dask_config)()
    assert caught.value.__cause__ is not None
    trace = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [Path(frame.filename).parent.name for frame in trace] == ["dask"] * len(trace) != []


@pytest.mark.timeout(20)
def test_a_cause_may_be_raised_by_what_has_caught_what_it_caused() -> None:
    cause = ValueError("below 0")

    def refused() -> None:
        try:
            raise dt.RoleFailedError("worker 0 raised ValueError.", "The data.", "Other data.") from cause
        except dt.RoleFailedError as error:
            raise cause from error

    with pytest.raises(ValueError, match=r"^below 0$"):
        raises_at_the_call(refused)()


def test_estimators_raise_at_the_call_too() -> None:
    x = np.zeros((4, 2))
    assert frames(lambda: LogisticRegression(C=-1).fit(x, [0, 1, 0, 1])) == ["<lambda>"]
    assert frames(lambda: LogisticRegression().fit(x * np.nan, [0, 1, 0, 1])) == ["<lambda>"], "found by scikit-learn"
    assert frames(lambda: LogisticRegression().predict(x)) == ["<lambda>"]
    assert frames(lambda: dt.search(Ridge(), x, x[:, 0], params={"nope": [1]}, cv=2)) == ["<lambda>"]
    assert frames(lambda: Incremental(Ridge()).fit(x, x[:, 0])) == ["<lambda>"]


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
def test_other_errors_keep_theirs(kind: type[Exception]) -> None:
    def verb() -> None:
        raise kind("x")

    with pytest.raises(kind) as caught:
        raises_at_the_call(verb)()
    assert [entry.name for entry in caught.traceback][-2:] == ["called", "verb"]


def test_a_warning_is_of_the_line_that_called() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2))
    model, labels = dt.linear_model.LogisticRegression(max_iter=1, tol=1e-9), (rows[:, 0] + rows[:, 1] ** 3 > 0)
    with pytest.warns(ConvergenceWarning) as warned:
        model.fit(rows, labels)
    assert warned[0].filename == __file__
    with pytest.warns(ConvergenceWarning) as warned:
        make_pipeline(StandardScaler(), model).fit(rows, labels)
    assert warned[0].filename.endswith("sklearn/pipeline.py"), "which calls it there"


@pytest.mark.parametrize(
    "call",
    [
        lambda url: dt.train(lambda _: None, roles={"worker": 1}, checkpoint=dt.Checkpoint(url, keep=0)),
        lambda url: dt.predict_to("memory://x", url, np.ones((2, 2))),
        lambda url: dt.predict(url, np.ones((2, 2))),
        lambda url: dt.Checkpoint("", best=url, mode=url),
    ],
)
def test_no_error_of_an_argument_shows_a_secret(call: Callable[[str], Any]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of any kind
        call("nosuch://u:hunter2@127.0.0.1:9/x.keras")
    assert "hunter2" not in "".join(traceback.format_exception(raised.value, chain=True)[-1:])
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or error.__context__


def test_the_repr_of_a_place_shows_no_secret() -> None:
    assert repr(dt.Checkpoint("http://u:hunter2@h")).startswith("Checkpoint(url='http://***@h', every_steps=None")


def test_nor_does_what_a_verb_raises_later_or_warns_of() -> None:
    @raises_at_the_call
    def verb(url: str) -> Any:
        warn_at_the_call(f"{url} is slow")

        async def later() -> None:
            raise ValueError(f"{url} is away")

        return later()

    with pytest.warns(UserWarning, match=r"^http://\*\*\*@h is slow$"):
        awaited = verb("http://u:hunter2@h")
    with pytest.raises(ValueError, match=r"^http://\*\*\*@h is away$"):
        asyncio.run(awaited)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: dt.search(None, None, n_trials=4), "search takes no n_trials=. Use trials=."),
        (lambda: dt.train(print, role={}), "train takes no role=. Did you mean 'roles'"),
        (lambda: dt.predict(None, None, batchsize=3), "predict takes no batchsize=. Did you mean 'batch_size'"),
        (lambda: dt.predict_to("out", None, None, colums="a"), "predict_to takes no colums=. Did you mean 'columns'"),
        (lambda: dt.publish_dataset(1, names="a"), "publish_dataset takes no names=. Did you mean 'name'"),
        (lambda: LinearRegression().fit(1, 2, weight=3), "fit takes no weight=. "),
        (lambda: LogisticRegression(n_jobs=2), "LogisticRegression takes no n_jobs=. Use workers=."),
        (lambda: LogisticRegression(penalty="l1"), "LogisticRegression takes no penalty=. Use C=, and l1_ratio=1.0"),
        (lambda: Incremental(None, random_state=3), "Incremental takes no random_state=. Use seed=."),
    ],
)
def test_an_argument_that_there_is_not_has_the_nearest_one_named(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(TypeError, match=re.escape(told)):
        call()
