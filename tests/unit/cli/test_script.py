"""A script is run as ``python`` would."""

from __future__ import annotations

import sys

import click
import pytest

from dask_train.cli.run import run_script


@pytest.fixture
def script(tmp_path):
    """Writes a script."""

    def write(text: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text(text)
        return str(file)

    return write


def test_a_script_is_the_main_program_with_its_arguments(script, capsys):
    before = list(sys.argv)
    path = script("import sys\nif __name__ == '__main__': print(sys.argv, __file__)\n")
    run_script(path, ["--lr", "0.1"])
    assert capsys.readouterr().out == f"{[path, '--lr', '0.1']} {path}\n"
    assert sys.argv == before


def test_the_status_is_that_of_the_script(script):
    with pytest.raises(SystemExit, match="3"):
        run_script(script("raise SystemExit(3)\n"), [])


def test_an_error_has_the_frames_of_the_script_alone(script, capsys):
    path = script("def f():\n    raise ValueError('mine')\nf()\n")
    with pytest.raises(SystemExit, match="1"):
        run_script(path, [])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{path}", line 3, in <module>']
    assert lines[-1] == "ValueError: mine"
    assert not any("runpy" in line or "dask_train" in line for line in lines)


def test_a_script_that_can_not_be_parsed_or_found(script, capsys):
    with pytest.raises(SystemExit, match="1"):
        run_script(script("def f(:\n"), [])
    assert "SyntaxError" in capsys.readouterr().err
    with pytest.raises(click.UsageError, match=r"There is no file /nowhere\.py\."):
        run_script("/nowhere.py", [])
