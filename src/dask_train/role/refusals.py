"""Roles that train a user's estimator: their errors for wrong input are the user's, and not faults of a process."""

from __future__ import annotations


class Refusing:
    """A role's function whose errors for wrong input are raised in the client as they are.

    All others that leave a role are the cause of a :class:`~dask_train.RoleFailedError`.
    """

    def refuses(self, error: BaseException) -> bool:
        """Return whether an error says what is wrong with the input.

        Parameters
        ----------
        error
            What has left the role's function.

        Returns
        -------
        bool
        """
        return isinstance(error, TypeError | ValueError)
