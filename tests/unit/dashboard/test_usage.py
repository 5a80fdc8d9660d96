"""What roles get through and take."""

from __future__ import annotations

from dask_train.dashboard.times import RATE_S, Usage
from dask_train.process.messages import Progress, to_plain
from dask_train.run.messages import RoleProcess


def tell(usage, now, attempt=0, **told):
    message = Progress(doing="", moved=True, awaits_client=False, **told)
    _, fields, of = to_plain(message, RoleProcess("worker", 0, attempt))
    usage.tell(of, fields, now)
    return usage["worker", 0]


def test_rates_are_of_the_last_seconds():
    usage = Usage()
    for second in range(31):  # slow at first
        done = max(0, second - 20)
        use = tell(usage, 100.0 + second, steps=done, rows=64 * done, memory_bytes=1 << 20, cpu_s=2.0 * second)
    assert use.rates(130.0) == (1.0, 64.0, 2.0)
    assert (use.rows, use.memory_bytes) == (640, 1 << 20)
    assert use.rates(130.0 + RATE_S + 1) == (0.0, 0.0, 0.0), "it has told nothing since"


def test_another_attempt_begins_anew():
    usage = Usage()
    tell(usage, 1.0, steps=9, rows=900, cpu_s=50.0)
    use = tell(usage, 2.0, attempt=1, steps=0, rows=0, cpu_s=1.0)
    assert (use.rows, use.rates(2.0)) == (0, (0.0, 0.0, 0.0))


def test_what_an_attempt_that_was_replaced_tells_late_does_not_count():
    usage = Usage()
    tell(usage, 1.0, attempt=1, steps=2, rows=20, cpu_s=1.0)
    use = tell(usage, 2.0, attempt=0, steps=9, rows=900, cpu_s=50.0)
    assert (use.attempt, use.rows) == (1, 20)
