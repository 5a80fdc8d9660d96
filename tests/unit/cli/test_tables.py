"""Tables for people and for programs: whole lines in a pipe, every word in a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from dask_train.cli.recorded_runs import print_facts, print_table


def printed(print_, *given, width=None, **how):
    file = io.StringIO()
    print_(*given, **how, console=Console(file=file, width=width, force_terminal=width is not None, color_system=None))
    return file.getvalue().splitlines()


def test_in_a_pipe_each_fact_is_one_line_whatever_its_text_has():
    facts = [("run", "a"), ("outcome", "failed:\n  run  b\n\tend\x1b[2J")]
    assert printed(print_facts, facts) == ["run      a", "outcome  failed: run b end\\x1b[2J"]


def test_in_a_pipe_each_row_is_one_line_and_an_empty_cell_is_seen():
    assert printed(print_table, ("a", "b"), [("one\ntwo", ""), ("", "x")], wraps=0) == [
        "a        b",
        "one two  -",
        "-        x",
    ]


def test_a_table_without_rows_is_its_headings():
    assert printed(print_table, ("a", "b"), [], wraps=0) == ["a  b"]
    assert "a" in printed(print_table, ("a", "b"), [], wraps=0, width=40)[0]


def test_a_narrow_terminal_breaks_the_wide_cell_and_loses_no_letter():
    lines = printed(print_table, ("name", "words"), [("whole-name", "x" * 50 + "[b]y[/b]")], wraps=1, width=30)
    assert all(len(line) <= 30 for line in lines)
    assert any(line.startswith("whole-name") for line in lines)
    assert "".join("".join(line[10:].split()) for line in lines[1:]) == "x" * 50 + "[b]y[/b]", "brackets are no markup"
