"""File formats are found by suffix: the package's own, and those of plug-ins."""

import textwrap

import numpy as np
import pytest
from helpers.store_helpers import assert_store_equals, gdm, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.ingestion.sources import built_in_formats, format_of
from gdm_dask.ingestion.sources.svmlight import SvmlightText

_FORMAT = """
    import numpy as np
    from gdm_dask.ingestion.slab import Slab
    from gdm_dask.ingestion.source import Source, SourceFacts

    class Rows:
        def __init__(self, lines, first):
            self.lines, self.first, self.nbytes = lines, first, sum(map(len, lines))

        def slabs(self):
            numbers = np.array([[float(word) for word in line.split(";")] for line in self.lines])
            yield lambda: Slab(len(numbers), labels=numbers[:, 0], dense=numbers[:, 1:])

    class Semicolons(Source):
        suffixes = (".semi",)

        def __init__(self, path):
            with open(path) as file:
                self.lines = file.read().split()
            self.facts = SourceFacts("dense", {"format": "semicolons", "files": [path]}, nbytes=len(self.lines))

        @classmethod
        def open(cls, paths, y, options):
            return cls(paths[0])

        def parts(self, max_bytes):
            return [Rows(self.lines[k : k + 7], k) for k in range(0, len(self.lines), 7)]
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package with an entry point, as pip would."""

    def install(module, value, text=""):
        site = tmp_path / "site"
        metadata = site / f"{module}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (site / f"{module}.py").write_text(textwrap.dedent(text))
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[gdm_dask.sources]\n{module} = {module}:{value}\n")
        monkeypatch.syspath_prepend(str(site))

    return install


def test_all_formats_of_the_package_are_found():
    found = {suffix: kind.__name__ for kind in built_in_formats() for suffix in kind.suffixes}
    assert found == {
        ".svm": "SvmlightText",
        ".svmlight": "SvmlightText",
        ".libsvm": "SvmlightText",
        ".mtx": "MatrixMarket",
        ".npz": "NpzMatrix",
        ".npy": "NpyMatrix",
        ".zarr": "ZarrMatrix",
        ".csv": "CsvTable",
        ".tsv": "CsvTable",
        ".parquet": "ParquetTable",
        ".h5ad": "AnnDataFile",
        ".bed": "PlinkGenotypes",
    }
    for suffix, name in found.items():
        for path in (f"a/b{suffix}", f"A/B{suffix.upper()}", f"s3://a/b{suffix}/", f"b{suffix}.gz"):
            assert format_of(path).__name__ == name


def test_files_without_a_known_suffix_are_svmlight_text():
    for path in ("a9a", "kddb.bz2", "data.txt", "x.zip", ".npy.d/a9a"):
        assert format_of(path) is SvmlightText


def test_a_format_of_another_package(tmp_path, install, capsys):
    matrix, labels = np.round(np.random.default_rng(0).random((30, 4)), 3), some_labels(30)
    rows = "\n".join(";".join(map(repr, map(float, row))) for row in np.column_stack([labels, matrix]))
    (tmp_path / "x.semi").write_text(rows)
    before, _, err = gdm(capsys, "ingest", tmp_path / "x.semi", tmp_path / "s.zarr")
    assert before == 2
    assert "x.semi, line 1" in " ".join(err.split())
    install("semicolons", "Semicolons", _FORMAT)
    code, out, err = gdm(capsys, "ingest", tmp_path / "x.semi", tmp_path / "s.zarr")
    assert code == 0, err
    assert "4 features x 30 samples" in out
    store = gdm_dask.open_store(tmp_path / "s.zarr")
    assert_store_equals(store, matrix, labels)
    assert store.manifest.provenance["source"]["format"] == "semicolons"


def test_a_format_that_cannot_be_loaded_is_named_and_left_out(tmp_path, install, caplog):
    install("broken", "Missing")
    matrix, labels = some_matrix(20, 10), some_labels(20)
    source = write_svmlight(tmp_path / "train", matrix, labels)
    assert_store_equals(gdm_dask.ingest(source, tmp_path / "s.zarr"), matrix, labels)
    assert "the file format broken (broken:Missing) cannot be loaded" in caplog.text
