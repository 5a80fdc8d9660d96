"""Arguments in messages, as whoever reads them passes them."""

from __future__ import annotations

from dask_train.spelling import by_caller, is_known, named, passed, spelled

_OPTIONS = {"batch_size": "--batch-size", "overwrite": "--overwrite", "x": "INPUT"}


def test_python_reads_keywords():
    assert [named("batch_size"), passed("label"), passed("overwrite", True)] == [
        "batch_size",
        "label=",
        "overwrite=True",
    ]
    assert passed("framework", "torch") == "framework='torch'"
    assert (is_known("meta"), by_caller("a call", "a command")) == (True, "a call")


def test_a_command_reads_its_options():
    with spelled(_OPTIONS):
        assert [named("x"), named("batch_size"), passed("overwrite", True)] == ["INPUT", "--batch-size", "--overwrite"]
        assert [passed("batch_size", 8), passed("batch_size", ["a", "b"])] == ["--batch-size 8", "--batch-size a,b"]
        assert (is_known("meta"), is_known("x"), by_caller("a call", "a command")) == (False, True, "a command")
        with spelled(None):  # a script that the command runs
            assert passed("overwrite", True) == "overwrite=True"
        assert named("x") == "INPUT"
    assert named("x") == "x"
