"""Private parts of torch. Made for torch 2.13."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any


def uncompiled(model: Any) -> Any:
    """Return the module in one that ``torch.compile`` has made; another model as it is.

    Replaces ``OptimizedModule._orig_mod``. Without it a compiled module, whose code is of one process, can't be sent.
    """
    return getattr(model, "_orig_mod", model)


def is_compiled_in_place(module: Any) -> bool:
    """Return whether ``module.compile()`` was called.

    Replaces ``Module._compiled_call_impl``. Without it users would not learn that workers train without compiled code.
    """
    return getattr(module, "_compiled_call_impl", None) is not None


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Return the leaves of nested tuples, lists, dicts and registered classes, and what :func:`unflatten` needs.

    Replaces ``torch.utils._pytree``. Without it outputs of a module have to be a tensor or a tuple.
    """
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(tree)
    return leaves, spec


def unflatten(leaves: Sequence[Any], spec: Any) -> Any:
    """Put leaves together again; see :func:`flatten`."""
    from torch.utils import _pytree

    return _pytree.tree_unflatten(leaves, spec)


def indices_and_values(sparse: Any) -> tuple[Any, Any]:
    """Return the parts of a sparse tensor as they are, also where several are of one place.

    Replaces ``_indices`` and ``_values``; the public ones are of coalesced tensors alone. Without it a checkpoint would
    round what an optimizer holds.
    """
    return sparse._indices(), sparse._values()


def make_parametrized(module: Any, names: Sequence[str]) -> None:
    """Give a module a class of its own, with properties for the tensors of these names.

    Replaces ``parametrize._inject_new_class`` and ``_inject_property``; ``register_parametrization`` would compute
    what parametrizations keep once more, and round it otherwise.
    """
    from torch.nn.utils import parametrize

    parametrize._inject_new_class(module)
    for name in names:
        parametrize._inject_property(module, name)


@contextmanager
def without_values() -> Iterator[None]:
    """Compute tensors by their shapes and dtypes alone, while it lasts; those that come out have no values.

    Tensors from outside may go in, and stay as they are. What looks at values raises an error.

    Replaces ``FakeTensorMode``. Without it an error of shapes is not distinguished from one of values.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # it takes most of a second to import

    log = logging.getLogger("torch._subclasses.fake_tensor")  # which prints errors that are raised, too
    was_disabled, log.disabled = log.disabled, True
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        log.disabled = was_disabled


def shapes_made(node: Any) -> list[tuple[int, ...]]:
    """Return the shapes of what an operation of a graph has made.

    Replaces ``Node._input_metadata``. Without it custom losses are not known to be means or sums.
    """
    return [tuple(output.shape) for output in node._input_metadata]


def shape_reduced(node: Any) -> tuple[int, ...]:
    """Return the shape of what a sum or a mean in a graph was taken of; see :func:`shapes_made`."""
    return tuple(getattr(node, "_saved_self_sym_sizes", ()))


def reduction_of(node: Any) -> int | None:
    """Return how an operation of a graph reduces what it has computed, in torch's numbers; None if it does not.

    Replaces ``_saved_reduction``; see :func:`shapes_made`.
    """
    reduction: int | None = getattr(node, "_saved_reduction", None)
    return reduction


def set_timeout(timeout: Any) -> None:
    """Set how long a collective of the default process group may take.

    Replaces ``distributed_c10d._set_pg_timeout``; ``init_process_group`` has one for its own meeting as well. Without
    it ranks that compute for longer than a launch may take are ended.
    """
    import torch.distributed as dist

    dist.distributed_c10d._set_pg_timeout(timeout)


@contextmanager
def meeting_by(rendezvous: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, ``rendezvous`` serves ``env://``, which is what ``init_process_group()`` asks for.

    Replaces an entry of ``_rendezvous_handlers``; ``register_rendezvous_handler`` refuses a scheme that there is.
    Without it programs that make their group themselves need a port of their own.
    """
    from importlib import import_module

    handlers: MutableMapping[str, Any] = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    before = handlers["env"]
    handlers["env"] = rendezvous
    try:
        yield
    finally:
        handlers["env"] = before


def collectives_begun() -> int:
    """Return how many collectives this rank has begun in the process groups that there are.

    Replaces ``_world`` and ``_get_sequence_number_for_group``. Without it ranks that train apart are not noticed.
    """
    import torch.distributed as dist

    groups = list(dist.distributed_c10d._world.pg_map)
    with suppress(RuntimeError):  # another thread takes a group down
        return sum(group._get_sequence_number_for_group() for group in groups)
    return 0


def register_collate(kind: type, collate: Callable[..., Any]) -> None:
    """Let ``default_collate`` put rows of a class together by ``collate``.

    Replaces an entry of ``default_collate_fn_map``, which torch documents and keeps private. Without it batches of a
    ``DataLoader`` are gathered row by row.
    """
    from torch.utils.data._utils.collate import default_collate_fn_map

    default_collate_fn_map[kind] = collate


def collate(rows: Sequence[Any], functions: dict[Any, Any]) -> Any:
    """Put rows together as ``default_collate`` does, with these functions by class.

    Replaces ``_utils.collate.collate``; see :func:`register_collate`.
    """
    from torch.utils.data._utils.collate import collate

    return collate(rows, collate_fn_map=functions)
