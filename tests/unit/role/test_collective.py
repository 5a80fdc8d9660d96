"""What a session does together with the other training roles; here a rank alone."""

from __future__ import annotations

import numpy as np


def test_one_rank_alone_agrees_with_itself(session, fake_link):
    link = fake_link()
    one = session(counts={"worker": 1, "scorer": 1}, link=link)
    x = np.arange(3.0)
    total = one.all_reduce([x, 2, np.float32(1.5)], op="mean")
    assert (total[0].tolist(), total[1:], type(total[2])) == ([0, 1, 2], [2.0, 1.5], np.float32)
    assert not np.shares_memory(total[0], x)
    assert one.broadcast((x,))[0].tolist() == one.all_gather(x).tolist() == x.tolist()
    one.barrier()
    assert link.notes[-1] == "in barrier(), waiting for the other ranks"
    assert link.moves[-1] == ("past barrier()", 0)
    one._meeting.close()
