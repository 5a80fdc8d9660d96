"""What is logged of a Ctrl-C."""

from __future__ import annotations

import logging

import pytest

from dask_train.cli.interrupt_noise import without_interrupt_noise


class AllExit(Exception):  # noqa: N818 - as distributed calls it
    pass


def logged(name, error):
    """Log an error as it is logged where it is caught."""
    try:
        raise error
    except Exception:
        logging.getLogger(name).exception("something ended")


@pytest.mark.parametrize(("name", "error"), [("tornado.application", NameError("future")), ("asyncio", AllExit())])
def test_noise_is_dropped_only_while_it_lasts(caplog, name, error):
    with without_interrupt_noise():
        logged(name, error)
        assert caplog.records == []
        logged(name, ValueError("news"))
        logging.getLogger(name).error("no error")
    logged(name, error)
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ValueError, None, type(error)]


def test_noise_of_one_is_news_of_another(caplog):
    with without_interrupt_noise():
        logged("asyncio", NameError("x"))
    assert len(caplog.records) == 1
