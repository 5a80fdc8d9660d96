"""Columns of frames as models know them: their order, their kinds, and the values of categories.

:mod:`frame_schema` describes a frame, :mod:`conforming` makes later frames like it, :mod:`conformer` does both where a
model is fitted. Where several frames make the inputs or targets, :mod:`placed` says which of them has which columns.
Each kind of column is a file of its own, registered in :mod:`kinds`; :mod:`values` writes any value of pandas as JSON,
exactly.
"""
