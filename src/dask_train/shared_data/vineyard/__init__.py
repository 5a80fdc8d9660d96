"""Vineyard's shared objects as data sets, and data sets as Vineyard's shared objects."""
