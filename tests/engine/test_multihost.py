"""Real hosts: scheduler, two workers and a client in separate network namespaces; a cable is cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.clusters import Cluster, gdm, same_model, small_data, until

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.pipeline.run_directory import RunDirectory

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "3", "--max-cuts", "5", "--tol", "0"]
HOSTS = ("head", "one", "two", "laptop")


def ip(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


class Network:
    """Namespaces on a bridge, with addresses 10.77.x.1, .2, ..."""

    def __init__(self) -> None:
        self.tag = f"g{os.getpid() % 100_000}"
        self.subnet = f"10.77.{os.getpid() % 250}"
        self.bridge = f"{self.tag}br"

    def namespace(self, host: str) -> str:
        return f"{self.tag}-{host}"

    def address(self, host: str) -> str:
        return f"{self.subnet}.{HOSTS.index(host) + 1}"

    def inside(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(host)]

    def make(self) -> str:
        """Create the network; returns the reason if that is impossible."""
        if shutil.which("ip") is None:
            return "there is no ip command (iproute2)"
        commands = [["link", "add", self.bridge, "type", "bridge"], ["link", "set", self.bridge, "up"]]
        for host in HOSTS:
            space, link = self.namespace(host), f"{self.tag}{host[:4]}"
            commands += [
                ["netns", "add", space],
                ["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space],
                ["link", "set", link, "master", self.bridge],
                ["link", "set", link, "up"],
                ["-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0"],
                ["-n", space, "link", "set", "eth0", "up"],
                ["-n", space, "link", "set", "lo", "up"],
            ]
        for command in commands:
            done = ip(*command)
            if done.returncode:
                return f"network namespaces cannot be made here: ip {' '.join(command)}: {done.stderr.strip()}"
        return ""

    def cut(self, host: str) -> None:
        assert ip("link", "set", f"{self.tag}{host[:4]}", "down").returncode == 0

    def heal(self, host: str) -> None:
        assert ip("link", "set", f"{self.tag}{host[:4]}", "up").returncode == 0

    def remove(self) -> None:
        for host in HOSTS:
            ip("netns", "delete", self.namespace(host))
        ip("link", "delete", self.bridge)


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    try:
        reason = network.make()
        if reason:
            pytest.skip(reason)
        yield network
    finally:
        network.remove()


@pytest.fixture
def store(tmp_path) -> FeatureStore:
    X, y = small_data()
    return ingest(X, tmp_path / "data.zarr", y, block_bytes=20_000)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cable_is_cut_in_the_middle_of_a_pass_and_mended(store, network, tmp_path: Path) -> None:
    RunDirectory(tmp_path / "expected").fit(GroupDiscoveryMachine(**SETTINGS, scheduler="synchronous"), store)
    cluster = Cluster(tmp_path / "cluster", prefix=network.inside("head"), host=network.address("head"))
    try:
        for host in ("one", "two"):
            cluster.add_worker(prefix=network.inside(host), host=network.address(host))
        cluster.fault("scores", "slow", times=6)
        options = ["--scheduler", cluster.address, *OPTIONS]
        env = {"DASK_GDM_DASK__SILENCE": "2", "DASK_GDM_DASK__WAIT_FOR_WORKERS": "60"}
        fit = gdm(
            "fit", store.url, "--run", tmp_path / "run", *options,
            log=tmp_path / "log", env=env, prefix=network.inside("laptop"),
        )  # fmt: skip
        until(cluster.struck, "a pass is under way")
        network.cut("two")
        fit.wait_for(r"worker tcp://\S+ has been (silent)")
        cluster.fault("top", "slow", times=3)
        network.heal("two")
        assert fit.wait() == 0, fit.text
        same_model(tmp_path / "run", tmp_path / "expected")
    finally:
        cluster.end()
