"""Strings of a store, packed into two arrays."""

from __future__ import annotations

import itertools

import numpy as np

from gdm_dask.errors import DamagedStore
from gdm_dask.store.arrays import ArrayEntry, write_array, write_group
from gdm_dask.store.folder import Folder


def write_text(folder: Folder, path: str, texts: list[str], codec: str) -> dict[str, ArrayEntry]:
    """Write strings as a group of two arrays; return their manifest entries by name below `path`."""
    write_group(folder, path)
    return {key: write_array(folder, f"{path}/{key}", array, codec) for key, array in pack_text(texts).items()}


def pack_text(texts: list[str]) -> dict[str, np.ndarray]:
    """Pack strings into two arrays: ``text`` (UTF-8 bytes) and ``offsets`` (the start of each string, and the end).

    >>> pack_text(["ab", "", "c"])["offsets"].tolist()
    [0, 2, 2, 3]
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)]).astype(np.int64)
    return {"offsets": offsets, "text": np.frombuffer(b"".join(encoded), np.uint8)}


def unpack_text(offsets: np.ndarray, text: np.ndarray, where: str = "the text") -> list[str]:
    """Undo `pack_text`. Raise `DamagedStore`, naming `where`, if the text is not UTF-8.

    >>> unpack_text(**pack_text(["ab", "", "c"]))
    ['ab', '', 'c']
    """
    data = text.tobytes()
    bounds = offsets.tolist()
    try:
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]
    except UnicodeDecodeError as error:
        raise DamagedStore(f"{where}: a name is not UTF-8 ({error})") from error
