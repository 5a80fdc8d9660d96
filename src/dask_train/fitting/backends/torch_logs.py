"""What the logs of a step are made of, found by following metrics' results through torch's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import keras
import torch

from dask_train.fitting.backends.base import Derived, flat

# What a followed tensor is made of: called with what finds the value of another one, it computes the value anew.
Again = Callable[[Callable[[Any], Any]], Any]


class Followed(torch.Tensor):
    """A tensor that is computed from nothing but metrics' results, and knows how.

    Attributes
    ----------
    plain
        The same as a tensor that knows nothing.
    again
        How it is computed.
    """

    plain: torch.Tensor
    again: Again

    @classmethod
    def of(cls, plain: torch.Tensor, again: Again) -> Followed:
        """Let a tensor know how it is computed."""
        followed = plain.as_subclass(cls)
        followed.plain, followed.again = plain, again
        return followed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call one of torch's functions, and follow what it makes where it takes no other tensors."""
        arguments = (args, kwargs or {})
        plain = _mapped(lambda one: one.plain if isinstance(one, Followed) else one, arguments)
        output = func(*plain[0], **plain[1])
        if not isinstance(output, torch.Tensor) or _takes_others(arguments):
            return output

        def again(value_of: Callable[[Any], Any]) -> Any:
            inner_args, inner_kwargs = _mapped(value_of, arguments)
            return func(*inner_args, **inner_kwargs)

        return cls.of(output, again)


@contextmanager
def followed_results() -> Iterator[None]:
    """While it lasts, what metrics return as their result is followed."""
    with ExitStack() as undone:
        for metric in _classes(keras.Metric):
            if "result" in vars(metric):
                undone.callback(setattr, metric, "result", metric.result)
                metric.result = _followed(metric.result)
        yield


def unfollowed(logs: Any) -> Any:
    """Return the same logs as plain tensors."""
    return _mapped(lambda one: one.plain if isinstance(one, Followed) else one, logs)


def derived_logs(logs: Any) -> Derived:
    """See :meth:`dask_train.fitting.backends.base.Backend.derived`."""
    logs = flat(logs)
    followed_logs = {name: log for name, log in logs.items() if isinstance(log, Followed)}
    others = {name for name, log in logs.items() if isinstance(log, torch.Tensor) and name not in followed_logs}

    def again() -> Sequence[Any]:
        known: dict[int, Any] = {}

        def value_of(one: Any) -> Any:
            if not isinstance(one, Followed):
                return one
            if id(one) not in known:
                known[id(one)] = one.again(value_of)
            return known[id(one)]

        with torch.no_grad():
            return [value_of(log) for log in followed_logs.values()]

    return Derived(names=tuple(followed_logs), again=again, raw=frozenset(others))


def _followed(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def result(self: Any) -> Any:
        metric_result = original(self)
        if isinstance(metric_result, torch.Tensor) and not isinstance(metric_result, Followed):
            return Followed.of(metric_result, lambda _: original(self))
        if isinstance(metric_result, Mapping):
            return {name: _entry(self, original, name, value) for name, value in metric_result.items()}
        return metric_result

    return result


def _entry(metric: Any, original: Callable[[Any], Any], name: str, value: Any) -> Any:
    """Return one of several results of a metric."""
    if not isinstance(value, torch.Tensor) or isinstance(value, Followed):
        return value
    return Followed.of(value, lambda _: original(metric)[name])


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mapped(function, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(function, item) for item in value)
    return function(value)


def _takes_others(arguments: Any) -> bool:
    """Return whether tensors that are not followed are among what a function takes: they may be of the batch."""
    are_others: list[bool] = []
    _mapped(lambda one: are_others.append(isinstance(one, torch.Tensor) and not isinstance(one, Followed)), arguments)
    return any(are_others)


def _classes(parent: type) -> Iterator[Any]:
    waiting, seen = [parent], set()
    while waiting:
        cls = waiting.pop()
        if cls not in seen:
            seen.add(cls)
            waiting.extend(cls.__subclasses__())
            yield cls
