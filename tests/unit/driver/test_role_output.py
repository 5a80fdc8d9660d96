"""Parts of a role's output, put together again."""

from __future__ import annotations

from dask_train.driver.role_output import OutputLine, _Piece, _shown


def test_lines_come_once_however_their_parts_overlap():
    piece = _Piece()
    text = "first\nsécond\nthird\nrest".encode()
    seen = []
    for start, end in [(0, 3), (0, 8), (2, 9), (9, 9), (4, 6), (9, 18), (0, len(text))]:
        seen += piece.take(end, text[start:end])
    assert seen == ["first", "sécond", "third"]
    assert piece.rest(("worker", 0, 0)) == [OutputLine("worker", 0, "rest")]
    assert piece.rest(("worker", 0, 0)) == []


def test_what_is_missing_is_said():
    piece = _Piece()
    assert piece.take(4, b"one\n") == ["one"]
    assert piece.take(12_348, b"two\n") == ["(here 12,340 bytes are missing: not so much is kept)", "two"]
    assert piece.take(12_352, b"six\n") == ["six"]


def test_a_progress_bar_is_shown_as_it_ends():
    assert _shown(b"10%\r20%\r100%\r") == "100%"
    assert (_shown(b"plain\r"), _shown(b""), _shown(b"\r\r")) == ("plain", "", "")


def test_a_line_with_its_role():
    assert str(OutputLine("worker", 3, "loss 0.1")) == "[worker 3] loss 0.1"
