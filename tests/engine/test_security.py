"""Security: certificates, versions, untrusted files, and names in output."""

from __future__ import annotations

import datetime
import hashlib
import io
import ipaddress
import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import dask
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from helpers.clusters import Cluster, Started, gdm, same_model, small_store, until

import gdm_dask
from gdm_dask import FeatureStore, GroupDiscoveryMachine, open_store
from gdm_dask.cli.options import security
from gdm_dask.cutting_plane.checkpoint import _read as read_checkpoint
from gdm_dask.engine import open_engine
from gdm_dask.engine.connect import open_client
from gdm_dask.engine.sealed import sealed_call
from gdm_dask.errors import BadInput, DamagedStore, EngineError
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.store import layout
from gdm_dask.store.folder import Folder

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 3, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "3", "--max-cuts", "3", "--tol", "0"]
NASTY = "[bold red]x[/] \x1b[31m\x07\r\x9b2J [link=file:///etc/passwd]y[/link] \\"


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FeatureStore:
    names = [f"{number} {NASTY}" for number in range(300)]
    return small_store(tmp_path_factory.mktemp("data"), feature_names=names)


def make_certificates(folder: Path) -> dict[str, str]:
    """Make a certificate authority and a certificate that it signed, as files."""
    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)

    def certificate(name: str, public_key, issuer: x509.Name, signer, authority: bool) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(addresses, critical=False)
            .sign(signer, hashes.SHA256())
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    authority = certificate("authority", authority_key.public_key(), issuer, authority_key, True)
    own = certificate("member", key.public_key(), issuer, authority_key, False)
    paths = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    Path(paths["ca"]).write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    Path(paths["cert"]).write_bytes(own.public_bytes(serialization.Encoding.PEM))
    Path(paths["key"]).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> dict[str, str]:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def tls_cluster(tmp_path_factory, certificates) -> Iterator[Cluster]:
    options = ("--tls-ca-file", certificates["ca"], "--tls-cert", certificates["cert"], "--tls-key",
               certificates["key"], "--protocol", "tls")  # fmt: skip
    cluster = Cluster(tmp_path_factory.mktemp("tls") / "cluster", n_workers=1, options=options)
    yield cluster
    cluster.end()


def tls_options(paths: dict[str, str]) -> list[str]:
    return ["--tls-ca", paths["ca"], "--tls-cert", paths["cert"], "--tls-key", paths["key"]]


def test_a_fit_over_tls(store, expected, tls_cluster, certificates, tmp_path: Path) -> None:
    assert tls_cluster.address.startswith("tls://")
    options = ["--scheduler", tls_cluster.address, *tls_options(certificates), *OPTIONS]
    fit = gdm("fit", store.url, "--run", tmp_path / "run", *options, log=tmp_path / "log")
    assert fit.wait() == 0, fit.text
    same_model(tmp_path / "run", expected)


def test_an_ingest_over_tls(tls_cluster, certificates, tmp_path: Path) -> None:
    source = tmp_path / "few.svm"
    source.write_text("+1 1:0.5 3:2\n-1 2:0.25\n")
    options = ["--scheduler", tls_cluster.address, *tls_options(certificates)]
    done = gdm("ingest", str(source), str(tmp_path / "few.zarr"), *options, log=tmp_path / "log")
    assert done.wait() == 0, done.text
    made = open_store(tmp_path / "few.zarr").to_scipy().toarray().tolist()
    assert made == [[0.5, 0], [0, 0.25], [2, 0]]


def test_a_search_over_tls(store, tls_cluster, certificates, tmp_path: Path) -> None:
    grid = ["-k", "3", "--C", "1", "--C", "50", "--folds", "2", "--scheduler", tls_cluster.address]
    refused = gdm("tune", store.url, *grid, log=tmp_path / "refused")
    assert refused.wait() == 3, refused.text
    assert "certificates" in refused.text
    output = tmp_path / "tuning.json"
    search = gdm("tune", store.url, *grid, *tls_options(certificates), "-o", output, log=tmp_path / "log")
    assert search.wait() == 0, search.text
    assert [row["C"] for row in json.loads(output.read_bytes())["table"]] == [1.0, 50.0]


def test_dasks_own_configuration(store, expected, tls_cluster, certificates, tmp_path: Path) -> None:
    env = {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": certificates["ca"],
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": certificates["cert"],
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": certificates["key"],
    }
    options = ["--scheduler", tls_cluster.address, *OPTIONS]
    fit = gdm("fit", store.url, "--run", tmp_path / "run", *options, log=tmp_path / "log", env=env)
    assert fit.wait() == 0, fit.text
    same_model(tmp_path / "run", expected)


def test_a_client_without_the_certificate_is_refused(
    store, tls_cluster, certificates, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(dask.config.config["gdm_dask"], "wait-for-workers", 1.0)
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tls://.*certificates"):
        open_engine(tls_cluster.address)
    with pytest.raises(EngineError, match="certificates"):
        open_engine(tls_cluster.address.replace("tls://", "tcp://"))
    stranger = make_certificates(tmp_path / "stranger")
    with pytest.raises(EngineError, match="certificates"):
        open_client(tls_cluster.address, security(stranger["ca"], stranger["cert"], stranger["key"]))
    # knows our authority, but has a certificate of another one
    with pytest.raises(EngineError, match="certificates"):
        open_client(tls_cluster.address, security(certificates["ca"], stranger["cert"], stranger["key"]))


def test_a_worker_without_the_certificate_is_refused(tls_cluster, certificates, tmp_path: Path) -> None:
    stranger = make_certificates(tmp_path / "stranger")
    options = ["--tls-cert", stranger["cert"], "--tls-key", stranger["key"]]
    worker = tls_cluster.start_worker(*options)
    until(lambda: "bad certificate" in tls_cluster.scheduler.text.lower() or "verify failed" in
          tls_cluster.scheduler.text.lower(), tls_cluster.scheduler.text)  # fmt: skip
    assert "Registered to" not in worker.text
    worker.end()


@pytest.mark.parametrize("given", [{"ca"}, {"cert", "key"}])
def test_certificates_go_together(certificates, given: set) -> None:
    paths = {name: path if name in given else None for name, path in certificates.items()}
    with pytest.raises(BadInput, match="--tls-ca, --tls-cert and --tls-key must be given together"):
        security(paths["ca"], paths["cert"], paths["key"])


@pytest.fixture
def fit_on(store, tmp_path: Path) -> Iterator[Callable[[str], Started]]:
    """Run a fit on a cluster whose only worker imports its modules from another path."""
    cluster = Cluster(tmp_path / "cluster")

    def fit(path: str) -> Started:
        cluster.add_worker(env={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}, fresh=True)
        options = ["--scheduler", cluster.address, *OPTIONS]
        started = gdm("fit", store.url, "--run", tmp_path / "run", *options, log=tmp_path / "log")
        started.wait()
        return started

    yield fit
    cluster.end()


def assert_refused(fit: Started, difference: str) -> None:
    text = " ".join(fit.text.split())
    assert fit.process.poll() == 3, text
    assert re.search(rf"worker tcp://\S+ differs from the driver: .*{difference}", text), text
    assert "Install the same on both sides" in text
    assert "Traceback" not in text


PACKAGE = Path(gdm_dask.__file__).parent
OTHER_NUMPY = """
import importlib.metadata as metadata
plain = metadata.version
metadata.version = lambda name: "1.2.3" if name == "numpy" else plain(name)
"""


@pytest.mark.cluster
def test_a_worker_with_another_library_is_refused(fit_on, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text(OTHER_NUMPY)
    fit = fit_on(f"{tmp_path / 'other'}:{PACKAGE.parent}")
    assert_refused(fit, rf"numpy 1\.2\.3 \(driver: {np.__version__}\)")


@pytest.mark.cluster
@pytest.mark.parametrize("change", ["other arguments", "other modules"])
def test_a_worker_with_other_code_is_refused(fit_on, tmp_path: Path, change: str) -> None:
    """Equal versions prove nothing about checkouts."""
    other = tmp_path / "other" / "gdm_dask"
    shutil.copytree(PACKAGE, other, ignore=shutil.ignore_patterns("__pycache__"))
    if change == "other arguments":
        data = other / "engine" / "data.py"
        data.write_text(data.read_text().replace("def look(numbers", "def look(verbose, numbers"))
        expected = r"code [0-9a-f]{12} \(driver: [0-9a-f]{12}\)"
    else:  # from an early version: no fingerprint, no passes
        (other / "system" / "version.py").write_text('VERSION = "0.1.0"')
        (other / "engine" / "data.py").unlink()
        expected = r"code unknown \(driver: [0-9a-f]{12}\)"
    assert_refused(fit_on(str(other.parent)), expected)


def test_versions_are_compared_without_the_package() -> None:
    """A worker that lacks it can tell the driver so."""
    program = "import pickle, sys; sys.modules['gdm_dask'] = None; print(pickle.load(sys.stdin.buffer).__name__)"
    opener = pickle.dumps(sealed_call([len])[0])
    done = subprocess.run([sys.executable, "-c", program], input=opener, capture_output=True, check=True)
    assert done.stdout == b"open_task\n"


def test_nothing_is_unpickled(store, expected, tmp_path: Path, monkeypatch) -> None:
    run = RunDirectory(tmp_path / "run")

    def stop(iteration) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.fit(GroupDiscoveryMachine(**SETTINGS, scheduler="synchronous"), store, callback=stop)

    open_store(store.url).verify()  # numba keeps its kernels as pickles, and loads them at their first use

    def refuse(*args, **kwargs):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    opened = open_store(store.url)
    opened.verify()
    assert opened.feature_names
    read_checkpoint(run.checkpoint)
    GroupDiscoveryMachine.load(expected)


def test_a_pickle_in_a_model_is_refused(expected, tmp_path: Path) -> None:
    with np.load(expected / "model.npz", allow_pickle=False) as arrays:
        state = dict(arrays)
    state["weights_"] = np.array([{"a": 1}], dtype=object)
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    (tmp_path / "model.npz").write_bytes(buffer.getvalue())
    document = json.loads((expected / "model.json").read_bytes())
    document["arrays_sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"malformed: weights_\.npy is not an array"):
        GroupDiscoveryMachine.load(tmp_path)


def test_members_of_an_archive_cannot_leave_it(expected, tmp_path: Path) -> None:
    """Archives are read by expected names only, and never unpacked."""
    (tmp_path / "run").mkdir()
    data = (expected / "model.npz").read_bytes()
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("../escaped.npy", b"x")
        archive.writestr(str(tmp_path.absolute() / "escaped.npy"), b"x")
    (tmp_path / "run" / "model.npz").write_bytes(buffer.getvalue())
    document = json.loads((expected / "model.json").read_bytes())
    document["arrays_sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    (tmp_path / "run" / "model.json").write_text(json.dumps(document))
    with suppress(BadInput):
        GroupDiscoveryMachine.load(tmp_path / "run")
    assert not list(tmp_path.rglob("escaped*"))


def test_names_in_a_manifest_cannot_leave_the_store(store, tmp_path: Path) -> None:
    folder = Folder(store.url)
    manifest = layout.read_manifest(folder)
    entry = manifest.arrays["targets"]
    (tmp_path / "store.zarr").mkdir()
    wicked = layout.Manifest(**{**manifest.__dict__, "arrays": {"targets": entry, "../../outside": entry}})
    layout.write_manifest(Folder(tmp_path / "store.zarr"), wicked)
    with pytest.raises(DamagedStore, match="outside"):
        open_store(tmp_path / "store.zarr")


def test_names_are_shown_as_what_they_are(store, expected, tmp_path: Path) -> None:
    for form in ("table", "tsv", "json"):
        shown = gdm(
            "groups", expected, "--format", form, log=tmp_path / form, env={"COLUMNS": "400", "FORCE_COLOR": "1"}
        )
        assert shown.wait() == 0, shown.text
        data = shown.log.read_bytes()
        assert b"[bold red]x[/]" in data
        assert b"\x1b[31m" not in data
        assert b"\x07" not in data
        assert b"\r" not in data
        assert "\x9b".encode() not in data


def test_paths_in_messages_are_shown_as_what_they_are(tmp_path: Path) -> None:
    failed = gdm("info", tmp_path / "[bold]\x1b[31mx[/].zarr", log=tmp_path / "log", env={"FORCE_COLOR": "1"})
    assert failed.wait() == 2
    assert "[bold]\\x1b[31mx[/].zarr" in failed.text.replace("\n", "")
    assert b"\x1b[31mx" not in failed.log.read_bytes()
