"""The page for those who add a kind of model: its program runs, and goes on exactly where a worker was killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
CLASSES, _, MAIN = PROGRAM.partition('\nif __name__ == "__main__":\n')

KILLS = """
import os
import signal
import time

inner = KMeansSpec.worker


def worker(self, session, loop):
    step_done = loop.step_done

    def dying():
        ended = step_done()
        if session.attempt == 0 and session.rank == 1 and loop.position.steps > 24 and os.path.isdir("kills"):
            time.sleep(0.1)  # rank 0 writes a checkpoint of the middle of the epoch meanwhile
            if loop.position.steps == 40:
                os.kill(os.getpid(), signal.SIGKILL)
        return ended

    loop.step_done = dying
    inner(self, session, loop)
    session.notice(f"began in epoch {loop.start.epoch}, within it {loop.start.batch > 0}")


KMeansSpec.worker = worker

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1) as client:
        rows = np.random.default_rng(0).normal(size=(1200, 2))
        X, begin = da.from_array(rows, chunks=(300, 2)), rows[:5]
        whole, killed, here = KMeans(begin), KMeans(begin), KMeans(begin)
        settings = {"epochs": 4, "batch_size": 50}
        first = dt.fit(whole, X, workers=2, **settings)
        os.mkdir("kills")
        often = dt.Checkpoint("kept", every_steps=3, every_s=None, best="inertia", mode="min")
        result = dt.fit(killed, X, workers=2, checkpoint=often, **settings)
        assert len(result.attempts) == 2, result.attempts
        assert any("began in epoch 1, within it True" in notice for notice in result.notices), result.notices
        assert (killed.centers == whole.centers).all(), "the same bits"
        assert result.history == first.history
        assert (result.ledger.trained, result.ledger.dropped) == (4800, 0), result.ledger
        assert "inertia" in result.report("page.html").read_text()
        dt.fit(here, X, workers=0, **settings)
        np.testing.assert_allclose(here.centers, whole.centers, rtol=1e-12)
        for wrong, told in (({"min_rows": 2}, "min_rows was 1, and is 2"), ({"min_row": 2}, "min_rows")):
            try:
                dt.fit(KMeans(begin), X, workers=2, checkpoint="kept", resume=True, **settings, **wrong)
            except (dt.RoleFailedError, TypeError) as error:
                assert told in str(error), error
            else:
                raise AssertionError(wrong)
    print("all is well")
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=360, check=False
    )


def test_the_program_runs(tmp_path: Path) -> None:
    ended = run(tmp_path, PROGRAM)
    centers, rest, searched = ended.stdout.splitlines()
    assert (rest, searched) == ("True ['inertia']", "True"), ended.stderr
    assert re.fullmatch(r"\[\[-?0\.\d, -?0\.\d\], \[[34]\.\d, -?0\.\d\], \[-?0\.\d, [34]\.\d\]\]", centers)


def test_a_worker_that_is_killed_within_an_epoch_changes_no_bit(tmp_path: Path) -> None:
    ended = run(tmp_path, CLASSES + KILLS)
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["all is well"]), ended.stderr[-3000:]
