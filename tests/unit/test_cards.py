"""How values show themselves: text in a terminal, HTML in a notebook."""

from __future__ import annotations

from dask_train.cards import MOST_ROWS, Card, CardTable
from dask_train.data.ledger import Ledger, LedgerLine
from dask_train.driver.result import Attempt, Result
from dask_train.predicting.to_files import PredictedFiles
from dask_train.shared_data.published import DatasetNames

LINE = LedgerLine(role="worker", rank=0, dataset=0, turn=0, epoch=1, read=1200, trained=1100, repeated=0)
LEDGER = Ledger(lines=(LINE,), read=1200, trained=1100, repeated=0, dropped=100)


def score(rank: int, time: float, **values: float) -> dict[str, object]:
    return {"role": "worker", "rank": rank, "attempt": 0, "time": time, **values}


def result() -> Result:
    return Result(
        results={"worker": [None, None]},
        scores=[score(0, 1.0, loss=2.0), score(1, 1.5, loss=9.0), score(0, 2.0, loss=1.0, val_loss=float("nan"))],
        ledger=LEDGER,
        attempts=[Attempt(number=0, started=100.0, ended=102.5, places={"worker/0": "tcp://a:1"}, reason="done")],
        stop_reason="<loss < 2>",
        run_id="train-1",
        notices=["a scorer was lost"],
    )


def test_a_result_in_a_terminal_says_what_counts() -> None:
    assert repr(result()).splitlines() == [
        "<Result train-1>",
        "  results of  2 worker",
        "  loss        1",
        "  val_loss    nan",
        "  ended       <loss < 2>",
        "  rows        1,100 trained, 100 dropped",
        "  took        2.5 s",
        "  notice      a scorer was lost",
    ]


def test_a_result_in_a_notebook_has_curves_and_its_ledger_and_is_escaped() -> None:
    html = result()._repr_html_()
    assert "&lt;loss &lt; 2&gt;" in html
    assert "<loss" not in html
    assert html.count("<polyline") == 1, "of the first rank's loss; a single point, or NaN, is no line"
    assert "1,100" in html
    assert "ledger: rows by role and epoch" in html


def test_small_values_have_a_line() -> None:
    assert repr(LEDGER) == "<Ledger: read 1,200, trained 1,100, repeated 0, dropped 100>"
    assert repr(result().attempts) == "[<Attempt 0: 2.5 s, 1 role, ended done>]"
    files = PredictedFiles(path="/p", kind="npy", num_parts=2, num_rows=2000, num_written=1)
    assert repr(files) == "<PredictedFiles /p: kind npy, rows 2,000, parts 2, written 1 by this call>"
    assert "tcp://a:1" in result().attempts[0]._repr_html_()
    assert "2,000" in files._repr_html_()


def test_names_of_data_sets_are_a_tuple_that_shows_itself() -> None:
    names = DatasetNames(["a", "<b>"])
    assert names == ("a", "<b>")
    assert repr(names) == "('a', '<b>')"
    assert "&lt;b&gt;" in names._repr_html_()


def test_a_long_table_is_cut_and_numbers_stand_right() -> None:
    html = CardTable(columns=("n", "of"), rows=[(f"{i}", "x") for i in range(MOST_ROWS + 3)]).html()
    assert html.count("<tr") == MOST_ROWS + 1
    assert "and 3 more" in html
    assert html.count("text-align:right") == MOST_ROWS + 1


def test_a_bar_stays_in_its_frame() -> None:
    assert "width:100.0%" in Card(kind="x", done=1.5).html()
    assert "progressbar" not in Card(kind="x").html()


def test_only_numbers_stand_right() -> None:
    def right(*texts: str) -> bool:
        return "text-align:right" in CardTable(columns=("n",), rows=[(text,) for text in texts]).html()

    assert right("1,100", "", "-0.5", "1e-07", "2.5 s", "80%")
    assert not right("1", "4.52 GiB of 23.54 GiB")
    assert not right("tcp://10.0.0.1:8786")


def test_no_card_shows_a_secret() -> None:
    url = "https://u:hunter2@h/x?a=1&sig=hunter2"
    card = Card(kind="Files", name=url, facts=[("from", url)], tables=[CardTable(columns=("url",), rows=[(url,)])])
    for shown in (card.text(), card.html()):
        assert "hunter2" not in shown
        assert "https://***@h/x?a=1" in shown
