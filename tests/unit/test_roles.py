"""Job names, counts and address books."""

from __future__ import annotations

import pickle

import pytest

from dask_train.roles import AddressBook, check_jobs, check_run_name

BOOK = AddressBook(ps=["10.0.0.1:40123"], worker=["10.0.0.2:40111", "10.0.0.3:40112"])


def test_book_reads_like_a_cluster_spec():
    assert BOOK.as_dict() == {"ps": ["10.0.0.1:40123"], "worker": ["10.0.0.2:40111", "10.0.0.3:40112"]}
    assert (BOOK.jobs, BOOK.num_tasks("worker")) == (["ps", "worker"], 2)
    assert BOOK.job_tasks("worker") == ["10.0.0.2:40111", "10.0.0.3:40112"]
    assert BOOK.task_address("worker", 1) == "10.0.0.3:40112"
    assert list(BOOK.tasks()) == [
        ("ps", 0, "10.0.0.1:40123"),
        ("worker", 0, "10.0.0.2:40111"),
        ("worker", 1, "10.0.0.3:40112"),
    ]


def test_as_dict_is_a_copy():
    BOOK.as_dict()["ps"].append("elsewhere")
    assert BOOK.num_tasks("ps") == 1
    assert type(BOOK.as_dict()) is dict


def test_book_survives_pickling():
    assert pickle.loads(pickle.dumps(BOOK)) == BOOK
    assert isinstance(pickle.loads(pickle.dumps(BOOK)), AddressBook)


def test_unknown_job_is_refused():
    with pytest.raises(ValueError, match=r"no job 'chief'; its jobs are ps, worker"):
        BOOK.job_tasks("chief")


@pytest.mark.parametrize("index", [2, -1])
def test_unknown_task_is_refused(index):
    with pytest.raises(ValueError, match=rf"'worker' has 2 tasks, numbered from 0; there is no task {index}"):
        BOOK.task_address("worker", index)


@pytest.mark.parametrize(
    ("jobs", "counts", "expected"),
    [
        (None, {}, {}),
        ({}, {}, {}),
        (None, {"ps": 1, "worker": 4}, {"ps": 1, "worker": 4}),
        ({"on": 2}, {"worker": 1}, {"on": 2, "worker": 1}),
        (None, {"Scorer_2": 1}, {"Scorer_2": 1}),
    ],
)
def test_jobs_and_keywords_are_joined_in_order(jobs, counts, expected):
    assert list(check_jobs(jobs, counts).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("jobs", "counts", "error", "text"),
    [
        ({"ps": 1}, {"ps": 2}, ValueError, "'ps' is given twice"),
        ([("ps", 1)], {}, TypeError, r"jobs is \[.*\], of type list; pass a mapping of job name to count"),
        ({1: 1}, {}, TypeError, "job name 1 is a int"),
        ({"": 1}, {}, ValueError, "'' can't be a job name"),
        ({"a b": 1}, {}, ValueError, "'a b' can't be a job name: TensorFlow takes a letter"),
        ({"2nd": 1}, {}, ValueError, "'2nd' can't be"),
        ({"_ps": 1}, {}, ValueError, "'_ps' can't be"),
        ({"wörker": 1}, {}, ValueError, "'wörker' can't be"),
        ({"ps/0": 1}, {}, ValueError, "'ps/0' can't be"),
        (None, {"ps": 0}, ValueError, "ps=0 asks for no task; .* at least 1"),
        (None, {"ps": -2}, ValueError, "ps=-2 asks for no task"),
        (None, {"ps": 1.0}, TypeError, r"ps=1\.0 is a float; .* whole number"),
        (None, {"ps": True}, TypeError, "ps=True is a bool"),
        (None, {"ps": "1"}, TypeError, "ps='1' is a str"),
        (None, {"ps": None}, TypeError, "ps=None is a NoneType"),
    ],
)
def test_bad_jobs_are_refused(jobs, counts, error, text):
    with pytest.raises(error, match=text):
        check_jobs(jobs, counts)


@pytest.mark.parametrize("name", ["fit", "7-nights", "a.b_c-d", "x" * 80])
def test_names_of_runs(name):
    assert check_run_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../../x", "a/b", "a\0b", "-x", ".x", "a b", "\x1b[31m", "\u00e4", "x" * 5000, "a\n"]
)
def test_names_that_no_run_can_have(name):
    with pytest.raises(ValueError, match=r"name is .* can't begin a run's name: that is a letter or digit") as caught:
        check_run_name(name)
    assert len(str(caught.value)) < 300


def test_a_name_that_is_no_string():
    with pytest.raises(TypeError, match="name is a int"):
        check_run_name(3)


@pytest.mark.parametrize(
    ("roles", "error", "text"),
    [
        (2, TypeError, r"roles is 2, of type int; pass a mapping of role name to count, such as \{'worker': 2\}"),
        ({"worker": 0}, ValueError, "worker=0 asks for no task; a role's count is at least 1. Leave the role out"),
        ({"my worker": 1}, ValueError, "'my worker' can't be a role name"),
    ],
)
def test_errors_name_the_argument(roles, error, text):
    with pytest.raises(error, match=text):
        check_jobs(roles, {}, "roles")
