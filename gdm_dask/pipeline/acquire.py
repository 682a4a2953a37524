"""Files of a pipeline: a local path, a path below ``GDM_DATA``, or a verified download from a web or object store.

A download resumes where an earlier one stopped, and gets its final name only once its checksum has been verified.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdm_dask.errors import BadInput, GdmError
from gdm_dask.pipeline.schema import TEXT, Key, Problem, Table, as_list
from gdm_dask.pipeline.step import Context, NotKnown, Step
from gdm_dask.store.folder import Folder, Url, options_of, write_whole
from gdm_dask.system.progress import report

if TYPE_CHECKING:
    from gdm_dask.pipeline.history import Record

logger = logging.getLogger(__name__)

ON_FIRST_USE = "on first use"
_PIECE = 1 << 20
_OBJECT_PIECE = 32 << 20
#: Attempts in a row without a new byte before a download gives up, and seconds between attempts.
ATTEMPTS = 5
PAUSE = 1.0
TIMEOUT = 60.0


class DownloadFailed(GdmError):
    """The server could not be reached, or stopped sending; repeating the command resumes the download."""


class NotOnServer(BadInput):
    """The server does not have the file, or refuses to send it."""


@dataclass(frozen=True)
class Acquired:
    """A local file or folder, with the checksum of its content."""

    path: Path
    sha256: str


class Acquire(Step):
    """Find or fetch all files."""

    name, stage = "acquire", "acquire"
    table = Table(
        others=Table(
            {
                # a file or folder; a relative path is searched in GDM_DATA, then in the working folder
                "path": Key(str, pattern=".+"),
                "url": Key(str, pattern="[a-z][a-z0-9+]*://.+"),  # http(s), or an object store: s3://bucket/file
                "storage_options": Table(anything=True),  # of the object store; never written anywhere
                "sha256": Key(str, several=True, pattern="[0-9a-f]{64}|on first use"),  # one, or alternatives
                "page": TEXT,  # web page of the file, for readers
                "note": TEXT,  # further help for fetching it by hand
            }
        )
    )

    @classmethod
    def problem(cls, settings: Mapping[str, Any]) -> Problem | None:
        """Return a problem for a file without a path or URL, or with a URL but no checksum."""
        for name, file in settings.get("acquire", {}).items():
            if "path" not in file and "url" not in file:
                return f"acquire.{name}", "must have a path or a url"
            if "url" in file and "sha256" not in file:
                return f"acquire.{name}.url", 'needs a sha256 ("on first use" if none is published)'
        return None

    def inputs(self, context: Context) -> dict[str, Any]:
        """Fetch the files and return their checksums."""
        downloads = context.folder / "downloads"
        for name, settings in context.pipeline.table("acquire").items():
            place = place_of(name, settings, downloads)
            if context.dry_run and place is not None and not place.exists():
                raise NotKnown(f"would fetch {name}")
            context.files[name] = acquire(name, settings, downloads, context.manifest.files)
        return {"files": self.run(context, "")}

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Return the checksum of each file."""
        del key
        return {name: file.sha256 for name, file in context.files.items()}

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Return True: `inputs` has already found the files."""
        return True

    def conclude(self, context: Context, outputs: dict[str, Any], record: Record) -> None:
        """Keep the checksums of the files that are still there, so that they are not read again."""
        files = context.manifest.files
        context.manifest.files = {place: seen for place, seen in files.items() if os.path.exists(place)}
        context.manifest.save()
        record.inputs = outputs


def acquire(name: str, settings: Mapping[str, Any], downloads: Path, known: dict[str, Any]) -> Acquired:
    """Find or fetch the file of a table of the pipeline, which gives its path, url, sha256, page and note.

    `known` holds checksums of earlier runs, with size and time of each file; unchanged files are not read again. It is
    updated in place.
    """
    expected = as_list(settings.get("sha256", []))
    found = place_of(name, settings, downloads)
    if found is None:
        raise BadInput(_missing(name, settings))
    if not found.exists():
        _download_or_tell(settings, found, expected)
    if not (found.is_file() or found.is_dir()):
        raise BadInput(f"acquire.{name}: {found} must be a file or a folder, got a pipe, a socket or a device")
    acquired = Acquired(found, content_hash(found, known))
    if not _is_right(acquired.sha256, expected):
        raise BadInput(
            f"acquire.{name}: {found} has the SHA-256 {acquired.sha256}, but the pipeline expects "
            f"{' or '.join(expected)}. Remove the file to fetch it again, or correct the pipeline if the new content "
            "is right."
        )
    return acquired


def _download_or_tell(settings: Mapping[str, Any], target: Path, expected: list[str]) -> None:
    """Fetch a file; if that fails, explain how to fetch it by hand."""
    try:
        download(Url(settings["url"], settings.get("storage_options")), target, expected)
    except (DownloadFailed, NotOnServer) as error:
        if "page" not in settings or "path" not in settings:
            raise
        raise type(error)(f"{error} {_by_hand(settings, 'Or fetch')}") from error


def _is_right(found: str, expected: list[str]) -> bool:
    return not expected or ON_FIRST_USE in expected or found in expected


def place_of(name: str, settings: Mapping[str, Any], downloads: Path) -> Path | None:
    """Return the local file or folder, or else the place of its download, if it has a URL."""
    path = Path(os.path.expanduser(settings["path"])) if "path" in settings else None
    found = None if path is None else next((place for place in _places(path) if place.exists()), None)
    return downloads / file_name(name, settings) if found is None and "url" in settings else found


def _places(path: Path) -> list[Path]:
    if path.is_absolute():
        return [path]
    data = os.environ.get("GDM_DATA")
    return [Path(data) / path, path] if data else [path]


def file_name(name: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a downloaded file: it keeps the suffix of its URL, which determines the format.

    >>> file_name("train", {"url": "https://example.org/sets/a1a.t.bz2?raw=1"})
    'train-a1a.t.bz2'
    """
    last = settings["url"].split("?")[0].rstrip("/").rsplit("/", 1)[-1]
    return f"{name}-{last}"


def _missing(name: str, settings: Mapping[str, Any]) -> str:
    tried = ", ".join(str(place) for place in _places(Path(settings["path"])))
    return f"acquire.{name}: {tried} does not exist. {_by_hand(settings)}"


def _by_hand(settings: Mapping[str, Any], verb: str = "Fetch") -> str:
    """Explain how to fetch a file by hand, and where to put it."""
    path = Path(settings["path"])
    text = f"{verb} it by hand from {settings['page']}" if "page" in settings else "Get it"
    if path.is_absolute():
        text += f" and put it at {path}."
    else:
        text += f" and put it at $GDM_DATA/{path}, with GDM_DATA set to your folder of data sets."
    return f"{text} {settings['note']}".strip() if "note" in settings else text


def content_hash(path: Path, known: dict[str, Any]) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files in a folder; cached by size and time."""
    if path.is_dir():
        digest = hashlib.sha256()
        for item in sorted(found for found in path.rglob("*") if found.is_file()):
            digest.update(f"{item.relative_to(path)}\0{content_hash(item, known)}\n".encode())
        return digest.hexdigest()
    stat = path.stat()
    seen = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    place = str(path.absolute())
    earlier = known.get(place)
    # A file that has just changed may change again within the resolution of its timestamp.
    if earlier is not None and earlier["seen"] == seen and stat.st_mtime_ns < earlier["at"] - 2_000_000_000:
        return str(earlier["sha256"])
    now = time.time_ns()
    with path.open("rb") as file:
        digest_hex = hashlib.file_digest(file, "sha256").hexdigest()
    known[place] = {"seen": seen, "sha256": digest_hex, "at": now}
    return digest_hex


def download(url: str, target: Path, expected: list[str]) -> None:
    """Fetch a file to `target`, resuming an earlier attempt; refuse it if its checksum is wrong."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.part")
    state = partial.with_name(f"{partial.name}.json")
    shown = url.partition("?")[0]  # a query may hold a secret
    logger.info("fetching %s", shown)
    failures = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            (_fetch if re.match("https?:", url) else _fetch_object)(url, partial, state)
            break
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429):
                raise NotOnServer(f"{shown}: the server answered {error.code} {error.reason}.") from error
            after = partial.stat().st_size if partial.exists() else 0
            failures = 1 if after > before else failures + 1
            if failures >= ATTEMPTS:
                reason = getattr(error, "reason", None) or error
                raise DownloadFailed(
                    f"{shown}: {reason}. {after:,} bytes are kept; the same command resumes from there."
                ) from error
            logger.info("%s: %s; resuming at byte %d", shown, error, after)
            time.sleep(PAUSE)
    _accept(shown, partial, state, target, expected)


def _accept(url: str, partial: Path, state: Path, target: Path, expected: list[str]) -> None:
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not _is_right(found, expected):
        partial.unlink()
        state.unlink(missing_ok=True)
        wanted = " or ".join(expected)
        raise BadInput(f"{url}: the SHA-256 is {found}, but {wanted} was expected. The file was discarded.")
    if ON_FIRST_USE in expected:
        logger.warning("%s: no checksum is published; add sha256 = %r to the pipeline", url, found)
    os.replace(partial, target)
    state.unlink(missing_ok=True)


def _fetch(url: str, partial: Path, state: Path) -> None:
    """Request the missing bytes once; return when the file is complete."""
    have = partial.stat().st_size if partial.exists() else 0
    validator = _validator(state) if have else None
    request = urllib.request.Request(url, headers={"User-Agent": "gdm_dask", "Accept-Encoding": "identity"})
    if validator:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        partial.unlink()  # longer than the file on the server: start over
        raise ConnectionError("the file on the server has changed") from error
    with response:
        goes_on = response.status == 206
        first = have if goes_on else 0
        if goes_on and not str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-"):
            raise http.client.HTTPException("the server sent another part than requested")
        length = response.headers.get("Content-Length")
        total = None if length is None else first + int(length)
        strong = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        write_whole(state, json.dumps({"validator": "" if strong.startswith("W/") else strong}).encode())
        with partial.open("ab" if goes_on else "wb") as file, report("fetch", total) as progress:
            progress(first)
            while piece := response.read(_PIECE):
                file.write(piece)
                progress(len(piece))
    size = partial.stat().st_size
    if total is not None and size != total:
        raise ConnectionError(f"the connection ended after {size:,} of {total:,} bytes")


def _fetch_object(url: str, partial: Path, state: Path) -> None:
    """Request the missing bytes of a file in an object store once; return when the file is complete."""
    source = Folder(Url(url.rpartition("/")[0], options_of(url)))
    key = url.rpartition("/")[2]
    try:
        info = source.info(key)
        tag, total = str(info.get("ETag") or info.get("mtime") or info.get("created")), int(info["size"])
        have = partial.stat().st_size if partial.exists() and _validator(state) == tag else 0
        write_whole(state, json.dumps({"validator": tag}).encode())
        with partial.open("ab" if have else "wb") as file, report("fetch", total) as progress:
            progress(have)
            for first in range(have, total, _OBJECT_PIECE):
                piece = source.read(key, first, min(first + _OBJECT_PIECE, total))
                file.write(piece)
                progress(len(piece))
    except FileNotFoundError as error:
        raise NotOnServer(f"{url}: {error.strerror or error}.") from error
    except BadInput as error:  # access is denied
        raise NotOnServer(str(error)) from error


def _validator(state: Path) -> str | None:
    """Return the tag that identifies the version of the file on the server; without it no download can resume."""
    try:
        return json.loads(state.read_bytes())["validator"] or None
    except (OSError, ValueError, KeyError):
        return None
