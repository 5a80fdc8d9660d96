"""What distinguishes decoded rows of files from others, in this process and in any later one."""

from __future__ import annotations

from typing import Any

from dask.tokenize import tokenize

from dask_train.data.file_decoder import FileDecoder
from dask_train.identity.digest import digest


def file_system_parts(fs: Any) -> tuple[Any, ...]:
    """Return what tells a file system of fsspec from others; its own token differs by process and thread."""
    return type(fs), fs.storage_args, fs.storage_options


def rows_token(fs: Any, decoder: FileDecoder, *contents: Any) -> str | None:
    """Return a token of decoded rows: the same in each process, for the same files, functions and arguments.

    Parameters
    ----------
    fs
        The file system of the files.
    decoder
        Makes the rows; the user's functions count with their code.
    *contents
        All else that decides what the rows are.

    Returns
    -------
    str or None
        None where something can't be taken apart, so that no two such sets of rows are taken for one.
    """
    try:
        rows = (decoder.opened(), decoder.dtype, decoder.row_shape)  # pickles differ by process
        return digest(tokenize(file_system_parts(fs)), rows, contents, with_modes=True)
    except Exception:  # whatever users' objects raise
        return None
