"""The policy of ``recovery=``: what to start again after a loss. ``run/lost_roles.py`` carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from dask_train.arguments import check_flags
from dask_train.input_errors import made_at_the_call

Scope = Literal["role", "gang", "in_place"]
_SCOPES = get_args(Scope)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One loss, as a policy sees it.

    Attributes
    ----------
    role
        The role that was lost.
    raised
        Whether its function raised; else its process, or its Dask worker, is gone.
    replaceable
        Whether the framework lets this role be replaced while the others continue.
    num_restarts
        Number of recoveries of the run so far that count.
    in_place
        Whether the others can stay where they are, with a new role in place of the lost one. Default: false.
    counts
        Whether its recovery counts as a restart. Default: true. That of a role does not whose Dask worker has left the
        cluster in order.
    """

    role: str
    raised: bool
    replaceable: bool
    num_restarts: int
    in_place: bool = False
    counts: bool = True


@made_at_the_call
@dataclass(frozen=True, kw_only=True)
class RecoveryPolicy:
    """Replace what was lost, up to a number of times.

    Parameters
    ----------
    scope
        ``"role"``: only the lost role starts again, and the others never pause. ``"gang"``: all start again, as the
        next attempt. ``"in_place"``, for ``dt.fit`` of torch modules, Keras models and linear models: a new process
        takes the place of the lost worker within the step, and the others keep theirs. Where that can't be, all start
        again in any case. For ``dt.fit`` of boosted trees: all start again, from a recent round, kept in memory.
    max_restarts
        Number of restarts in a run; the loss after that ends it. Default: 3.
    retry_errors
        Whether an exception in the user's function counts as a loss. By default it ends the run: what raises once
        mostly raises again.
    """

    scope: Scope = "role"
    max_restarts: int = 3
    retry_errors: bool = False

    def __post_init__(self) -> None:
        if self.scope not in _SCOPES:
            raise ValueError(f"scope is {self.scope!r}; it is 'role', 'gang' or 'in_place'.")
        count: Any = self.max_restarts
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"max_restarts is {self.max_restarts!r}; it is a whole number from 0.")
        check_flags(retry_errors=self.retry_errors)

    def decide(self, failure: Failure) -> Literal["role", "gang", "in_place", "end"]:
        """Decide what to start again after a loss, or ``"end"``.

        Parameters
        ----------
        failure
            The loss.

        Returns
        -------
        'role', 'gang', 'in_place' or 'end'
            Only the lost role, all, the lost role while the others wait for it, or nothing.
        """
        has_no_more = failure.counts and failure.num_restarts >= self.max_restarts
        if has_no_more or (failure.raised and not self.retry_errors):
            return "end"
        if self.scope == "in_place" and failure.in_place:
            return "in_place"
        return "role" if self.scope == "role" and failure.replaceable else "gang"


def check_recovery(recovery: str | RecoveryPolicy | None) -> RecoveryPolicy | None:
    """Return the policy that a user's ``recovery=`` means.

    Raises
    ------
    ValueError, TypeError
        It means none.
    """
    if recovery is None or isinstance(recovery, RecoveryPolicy):
        return recovery
    if isinstance(recovery, str):
        if recovery not in _SCOPES:
            raise ValueError(f"recovery is {recovery!r}; it is 'role', 'gang', 'in_place', None or a RecoveryPolicy.")
        return RecoveryPolicy(scope=cast(Scope, recovery))
    raise TypeError(
        f"recovery is a {type(recovery).__name__}; it is 'role', 'gang', 'in_place', None or a RecoveryPolicy."
    )
