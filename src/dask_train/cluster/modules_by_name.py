"""Modules with classes of their own, as PyTorch has: what names one, such as a training loop, can be pickled."""

from __future__ import annotations

import copyreg
import importlib
import sys
from collections.abc import Callable
from types import ModuleType


def register(package: str) -> None:
    """Let a package's modules that are instances of subclasses of ``ModuleType`` pickle by their names.

    cloudpickle (3.1) knows plain modules alone. ``torch.backends.cudnn``, ``torch.ops`` and others are not plain, so a
    function of a script or a notebook that says ``torch.backends.cudnn.benchmark = True`` could not be sent; nor could
    one that uses ``torch`` and, as ``keras.ops``, any attribute that is called ``ops``. The process that unpickles
    needs the package alone.

    Parameters
    ----------
    package
        It has been imported; modules of it that are imported later are not known.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and ModuleType in type(module).__mro__[1:]:
            copyreg.pickle(type(module), _by_name)


def _by_name(module: ModuleType) -> tuple[Callable[[str], ModuleType], tuple[str]]:
    return importlib.import_module, (module.__name__,)
