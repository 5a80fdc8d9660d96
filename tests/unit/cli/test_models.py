"""``dask train predict`` and ``evaluate`` over Parquet, in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sklearn.linear_model import LogisticRegression

import dask_train as dt
from dask_train.cli import train
from dask_train.fitting.saved import save_model


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Rows with a feature that tells the label, most of the time, and an index of their own."""
    rng = np.random.default_rng(0)
    columns = {"distance": rng.normal(size=100), "delay": rng.normal(size=100)}
    late = (columns["distance"] + 0.3 * rng.normal(size=100) > 0).astype(int)
    weight = rng.uniform(1, 2, size=100)
    return pd.DataFrame({**columns, "late": late, "weight": weight}, index=pd.RangeIndex(1000, 1100))


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows in three files, and a model with its schema."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "rows").mkdir()
    for number, start in enumerate((0, 30, 90)):
        frame.iloc[start : (30, 90, 100)[number]].to_parquet(folder / "rows" / f"{number}.parquet")
    features = ["distance", "delay"]
    model = LogisticRegression().fit(frame[features], frame["late"])
    save_model(model, dt.FrameSchema.of(frame, features, "late"), folder / "model")
    save_model(model, None, folder / "bare")
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a command in the folder, without a scheduler."""
    monkeypatch.chdir(folder)

    def invoke(*words: str) -> Result:
        with dask.config.set({"scheduler-address": None}):
            return CliRunner().invoke(train, list(words))

    return invoke


@pytest.fixture
def model(frame: pd.DataFrame) -> LogisticRegression:
    return LogisticRegression().fit(frame[["distance", "delay"]], frame["late"])


def test_predictions_of_all_rows_with_their_index(run, frame, folder, model, tmp_path):
    ran = run("predict", "model", "rows", str(tmp_path / "out"))
    assert (ran.exit_code, ran.output) == (0, "100 rows in 3 files, 3 of them written now\n")
    found = dd.read_parquet(tmp_path / "out").compute()
    assert found.index.tolist() == frame.index.tolist()
    np.testing.assert_array_equal(found["prediction"], model.predict(frame[["distance", "delay"]]))
    again = run("predict", "model", "rows/*.parquet", str(tmp_path / "out"), "--json")
    assert again.exit_code == 1, "the files of another pattern are other data"
    again = run("predict", "model", "rows", str(tmp_path / "out"), "--json")
    assert json.loads(again.output) == {"path": str(tmp_path / "out"), "rows": 100, "files": 3, "written": 0}


def test_options_of_a_prediction(run, frame, model, tmp_path):
    words = ("--method", "predict_proba", "--columns", "early,late", "--features", "distance,delay")
    assert run("predict", "bare", "rows", str(tmp_path / "out"), *words).exit_code == 0
    found = dd.read_parquet(tmp_path / "out").compute()
    np.testing.assert_allclose(found["late"], model.predict_proba(frame[["distance", "delay"]])[:, 1])
    other = run("predict", "model", "rows", str(tmp_path / "out"), "--features", "distance,delay")
    assert (other.exit_code, "overwrite" in other.output) == (1, True)
    assert run("predict", "model", "rows", str(tmp_path / "out"), "--overwrite").exit_code == 0


def test_scores_of_all_rows(run, frame, model):
    x, y = frame[["distance", "delay"]], frame["late"]
    ran = run("evaluate", "model", "rows", "--json")
    assert json.loads(ran.output) == {"accuracy": pytest.approx(model.score(x, y))}
    assert run("evaluate", "model", "rows").output == f"accuracy  {model.score(x, y):.6g}\n"
    ran = run("evaluate", "bare", "rows", "--label", "late", "--features", "distance,delay", "--json")
    assert json.loads(ran.output) == {"accuracy": pytest.approx(model.score(x, y))}
    ran = run("evaluate", "model", "rows", "--sample-weight", "weight", "--json")
    assert json.loads(ran.output) == {"accuracy": pytest.approx(model.score(x, y, frame["weight"]))}


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("evaluate", "bare", "rows"), 2, "bare does not know which column is its target. Pass --label NAME."),
        (("evaluate", "model", "rows", "--label", "on_time"), 1, "on_time"),
        (("evaluate", "model", "nowhere"), 1, "nowhere can't be read as Parquet"),
        (("evaluate", "model", "model"), 1, "model can't be read as Parquet"),
        (("evaluate", "nowhere", "rows", "--label", "late"), 1, "nowhere"),
        (("predict", "nowhere", "rows", "out"), 1, "nowhere"),
        (("predict", "model", "rows", "out", "--features", "distance,"), 2, "is not like NAME,NAME."),
        (("predict", "model", "rows", "out", "--batch-size", "0"), 2, "x>=1"),
        (("evaluate", "model", "rows", "--metric", "a"), 2, "'a' is not like NAME=VALUE"),
    ],
)
def test_what_can_not_be_read_is_told_in_words(run, words, status, told):
    ran = run(*words)
    assert (ran.exit_code, "Traceback" in ran.output) == (status, False)
    assert told in " ".join(ran.output.replace("│", " ").split())


# Keywords and objects of Python, which nobody passes in a shell.
_PYTHON = re.compile(r"\b[a-z_]+=(?![\w/-])|=True|\bdask_train\.|\bframe\b|\bx\b|\bmeta\b")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("evaluate", "model", "rows", "--label", "on_time"), "INPUT has no column 'on_time'"),
        (("evaluate", "model", "rows", "--label", "delay"), "INPUT has no column 'delay', which the model was fitted"),
        (("evaluate", "model", "rows", "--label", "late,delay"), "--label late,delay of INPUT"),
        (("evaluate", "model", "rows", "--sample-weight", "w"), "--sample-weight w is no column of INPUT"),
        (
            ("evaluate", "model", "rows", "--loss", "math:fsum"),
            "takes no --loss for a model of type LogisticRegression",
        ),
        (("evaluate", "bare", "rows", "--label", "late"), "Name those that it was fitted with: --features."),
        (("evaluate", "nowhere", "rows"), "MODEL is 'nowhere'"),
        (("predict", "model", "rows", "new", "--method", "guess"), "Name another with --method."),
        (("predict", "bare", "rows", "new", "--features", "delay"), "--features NAME,NAME."),
        (("predict", "model", "rows", "new", "--features", "late"), "Leave --features out"),
        (("predict", "model", "rows", "new", "--columns", "a,b"), "--columns has 2 names"),
        (("predict", "model", "rows", "model/schema.json"), "/model/schema.json is a file."),
        (("predict", "model", "rows", "begun", "--method", "predict_proba"), "pass --overwrite to remove them."),
    ],
)
def test_errors_name_options_not_keywords(run, folder, words, told):
    if "begun" in words:
        assert run("predict", "model", "rows", "begun").exit_code == 0
    ran = run(*words)
    assert ran.exit_code == 1
    assert told in ran.output
    assert not _PYTHON.search(ran.output)


def test_ctrl_c_says_what_is_left(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dask_train.predicting.to_files.predict_to", interrupted)
    ran = run("predict", "model", "rows", "out")
    told = "Interrupted; what is written stays, and the same command writes the rest.\n"
    assert (ran.exit_code, ran.output) == (130, told)
