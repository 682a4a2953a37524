"""Files are written atomically, and failed writes leave nothing behind."""

from pathlib import Path

import pytest

from gdm_dask.store.folder import Folder, write_whole


@pytest.mark.parametrize(
    "write", [lambda path, data: Folder(path.parent).write(path.name, data), write_whole], ids=["Folder", "write_whole"]
)
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, write) -> None:
    write(tmp_path / "file", b"one")
    write(tmp_path / "file", b"two")
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "taken", b"three")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
    assert (tmp_path / "file").read_bytes() == b"two"
