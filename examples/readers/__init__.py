"""Photographs in folders by class, and a pretrained network, from packages that ship them.

A reader of one's own files looks like these. Dask workers that have no such folder get this code by value:
``cloudpickle.register_pickle_by_value(readers)``.
"""

from readers.efficientnet_lite0 import load_efficientnet_lite0
from readers.photographs import Photographs, fetch_photographs, load_photographs, read_photograph

__all__ = ["load_photographs", "fetch_photographs", "read_photograph", "Photographs", "load_efficientnet_lite0"]
