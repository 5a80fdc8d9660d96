"""What roles get through and take, as they tell it with their progress: batches, rows, memory, processors."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Over how many seconds rates are taken; where nothing was reported for so long there are none.
RATE_S = 10.0


@dataclass
class RoleUse:
    """What one role has reported, of its attempt now; its most memory is that of all attempts."""

    attempt: int = 0
    rows: int = 0
    memory_bytes: int = 0
    most_memory_bytes: int = 0
    samples: deque[tuple[float, int, int, float]] = field(default_factory=deque)  # when; batches, rows, CPU seconds

    def tell(self, attempt: int, fields: Mapping[str, Any], now: float) -> None:
        """Take over its last report."""
        if attempt != self.attempt:
            self.samples.clear()
        self.attempt, self.rows, self.memory_bytes = attempt, int(fields["rows"]), int(fields["memory_bytes"])
        self.most_memory_bytes = max(self.most_memory_bytes, self.memory_bytes)
        self.samples.append((now, int(fields["steps"]), self.rows, float(fields["cpu_s"])))
        while len(self.samples) > 2 and now - self.samples[1][0] >= RATE_S:
            self.samples.popleft()

    def rates(self, now: float) -> tuple[float, float, float]:
        """Batches, rows and CPU seconds a second, over the last seconds; all 0 if it has reported nothing."""
        if len(self.samples) < 2 or now - self.samples[-1][0] > RATE_S:
            return 0.0, 0.0, 0.0
        (begin, *first), (end, *last) = self.samples[0], self.samples[-1]
        took_s = end - begin
        batches, rows, cpu_s = ((b - a) / took_s if took_s > 0 else 0.0 for a, b in zip(first, last, strict=True))
        return batches, rows, cpu_s


class Usage(dict[tuple[str, int], RoleUse]):
    """What the roles of a run have reported."""

    def tell(self, of: Any, fields: Mapping[str, Any], now: float) -> None:
        """Take over a role's progress, as ``dask_train.process.messages.Progress`` has it."""
        role, rank, attempt = of
        self.setdefault((role, rank), RoleUse(attempt=attempt)).tell(attempt, fields, now)
