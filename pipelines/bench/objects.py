"""Fits and ingests with an object store with a latency of 100 ms per request, against the same with the local disk.

Run it with ``make bench-objects``. A server on this machine answers the requests of s3fs with the files of a folder,
each after the latency. Later passes read copies on the local disk. Both sides take turns;
the best of several is taken for each. Where obstore is installed, it reads the same objects for comparison.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from frame import Line
from fsspec.asyn import get_loop
from measure import machine

import gdm_dask
from gdm_dask.ingestion.sources.lookalikes import lookalike_source, scaled_lookalike
from gdm_dask.ingestion.sources.lookalikes.files import write_text
from gdm_dask.store import FeatureStore
from gdm_dask.store.folder import file_system

LATENCY, TURNS, SCALE, K = 0.1, 3, 0.1, 100
#: Requests under way at the same time where clients are compared.
WINDOW = 32


class Server:
    """The part of S3 that stores need: objects are written, read and asked for, below any bucket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def start(self) -> None:
        """Print the port and answer until the process is ended."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0, limit=1 << 20)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                facts = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                if facts.get("expect"):
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(facts.get("content-length", 0)))
                await asyncio.sleep(LATENCY)
                method, url, _ = first.split()
                path, _, query = url.partition("?")
                await self.send(method, self.folder / path.lstrip("/").partition("/")[2], query, body, writer)
        writer.close()

    async def send(self, method: str, path: Path, query: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer a request."""
        if method == "PUT":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        elif method == "DELETE":
            path.unlink(missing_ok=True)
        elif method == "POST":
            for key in re.findall(b"<Key>(.*?)</Key>", body):
                (self.folder / key.decode()).unlink(missing_ok=True)
        there = method in ("GET", "HEAD") and path.is_file()
        text = b"" if there or method in ("PUT", "DELETE") else b"<Result></Result>"  # of a list: it is empty
        known = there or method not in ("GET", "HEAD") or "list-type" in query
        size = path.stat().st_size if there else len(text)
        changed = "Thu, 01 Jan 2026 00:00:00 GMT"
        lines = [f"HTTP/1.1 {'200 OK' if known else '404 Not Found'}", f"Content-Length: {size}"]
        writer.write("\r\n".join([*lines, f"Last-Modified: {changed}", 'ETag: "1"', "", ""]).encode())
        if method != "HEAD" and not there:
            writer.write(text)
        await writer.drain()
        if method == "GET" and there:
            with path.open("rb") as file:
                await asyncio.get_running_loop().sendfile(writer.transport, file)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start the server in a process of its own; yield its address."""
    server = subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()


def seconds_of_fit(store: FeatureStore, scheduler: str) -> float:
    """Seconds of a fit, with its groups."""
    began = time.perf_counter()
    gdm_dask.GroupDiscoveryMachine(K, scheduler=scheduler, n_workers=2).fit(store)
    return time.perf_counter() - began


def compare_fits(local: FeatureStore, remote: FeatureStore) -> None:
    """Print the ratio of both stores for each engine."""
    for scheduler in ("threads", "processes"):
        taken: dict[FeatureStore, list[float]] = {local: [], remote: []}
        for _ in range(TURNS):
            for store, times in taken.items():
                times.append(seconds_of_fit(store, scheduler))
        disk, objects = (min(times) for times in taken.values())
        text = f"fit with {scheduler}: {objects:.1f} s from objects, {disk:.1f} s from the disk"
        print(Line(text, objects / disk, at_most=2.0), flush=True)


def compare_ingests(folder: Path, options: dict[str, Any]) -> None:
    """Print the seconds of an ingest to both places."""
    text = folder / "source.svm"
    lookalike = scaled_lookalike("webspam", SCALE / 4)
    write_text(text, lookalike, 0, 0, lookalike.n_samples)
    taken: dict[str, list[float]] = {f"{folder}/ingested": [], "s3://bucket/objects": []}
    for _ in range(TURNS):
        for place, times in taken.items():
            began = time.perf_counter()
            gdm_dask.ingest(text, place, overwrite=True, storage_options=options)
            times.append(time.perf_counter() - began)
    disk, objects = (min(times) for times in taken.values())
    size = text.stat().st_size / 1e6
    print(Line(f"ingest of {size:.0f} MB: {objects:.1f} s to objects, {disk:.1f} s to the disk", objects / disk))


def read_all(get: Callable[[str], Awaitable[Any]], keys: list[str]) -> tuple[float, float]:
    """Seconds and processor seconds to read objects, several at the same time; the best of several turns."""
    taken = []
    for _ in range(TURNS + 1):
        began, cpu = time.perf_counter(), time.process_time()
        coming: deque[Any] = deque()
        for key in keys:
            coming.append(asyncio.run_coroutine_threadsafe(get(key), get_loop()))  # type: ignore[arg-type]
            if len(coming) == WINDOW:
                coming.popleft().result()
        while coming:
            coming.popleft().result()
        taken.append((time.perf_counter() - began, time.process_time() - cpu))
    return min(wall for wall, _ in taken), min(cpu for _, cpu in taken)


def compare_clients(keys: list[str], endpoint: str, options: dict[str, Any]) -> None:
    """Print what it costs to read all objects with each client."""
    files, _ = file_system("s3://bucket", options)
    clients: dict[str, Callable[[str], Awaitable[Any]]] = {"s3fs": lambda key: files._cat_file(f"bucket/{key}")}
    try:
        import obstore
    except ImportError:
        print("obstore is not installed")
    else:
        store = obstore.store.S3Store(
            "bucket", endpoint=endpoint, access_key_id="us", secret_access_key="us", region="us-east-1",
            client_options={"allow_http": True}, virtual_hosted_style_request=False,
        )  # fmt: skip

        async def get(key: str) -> Any:
            return await (await obstore.get_async(store, key)).bytes_async()

        clients["obstore"] = get
    for name, client in clients.items():
        wall, cpu = read_all(client, keys)
        print(f"{name} reads {len(keys)} objects in {wall:.2f} s, {cpu:.2f} s of processor", flush=True)


def main() -> None:
    """Make a store, and read it both ways."""
    print(machine())
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as endpoint:
        lookalike = scaled_lookalike("webspam", SCALE)
        source = lookalike_source("webspam", lookalike, 0, 0, lookalike.n_samples)
        local = gdm_dask.ingest(source, f"{folder}/data.zarr")
        options = {"endpoint_url": endpoint, "key": "us", "secret": "us"}
        remote = gdm_dask.open_store("s3://bucket/data.zarr", options)
        chunks = sorted(path for path in Path(folder).rglob("c/*") if path.is_file())
        size = sum(path.stat().st_size for path in chunks)
        print(f"{local}: {local.n_blocks} blocks, {len(chunks)} chunks, {size / 1e6:.0f} MB", flush=True)
        compare_fits(local, remote)
        compare_ingests(Path(folder), options)
        compare_clients([str(path.relative_to(folder)) for path in chunks], endpoint, options)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(Server(Path(sys.argv[1])).start())
    else:
        main()
