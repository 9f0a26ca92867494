"""A recording: a folder of Parquet files and a manifest (docs/recording.md)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Union

from ._command import CommandFailed, NcpuError, ask, start, words

if TYPE_CHECKING:
    import pyarrow

    from ._views import Onion

StrPath = Union[str, "os.PathLike[str]"]

#: The version of the layout that this module reads.
FORMAT = 1
#: What a manifest and a table may have, in bytes: as `ncpu` itself reads them.
MOST_MANIFEST = 64 << 20
MOST_TABLE = 256 << 20
#: Memory that a table may take, and for each byte of its file, as in `ncpu` itself; rows that are decoded at a time.
LEAST_MEMORY = 256 << 20
MEMORY_RATIO = 64
MOST_MEMORY = 4 << 30
BATCH = 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.parquet")


class BadRecording(NcpuError):
    """What was to be opened is no recording, or was changed since it was made."""


class NoTable(NcpuError, KeyError):
    """A recording has no such table. It is a KeyError too, as mappings raise."""

    def __str__(self) -> str:
        return str(self.args[0])


def _bytes(path: Path, most: int) -> bytes:
    """A regular file's content, and no symbolic link's: a recording may be somebody else's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise BadRecording(f"{path}: {error.strerror}") from error
    if len(content) > most:
        raise BadRecording(f"{path}: larger than {most} bytes")
    return content


def _without_manifest(path: Path) -> str:
    """What to say of a path that is not a recording."""
    if not path.exists():
        return f"{path}: No such file or directory"
    if not path.is_dir():
        return f"{path}: Not a directory: a recording is a folder with a manifest.json"
    try:
        below = sorted(entry.name for entry in os.scandir(path) if os.path.exists(os.path.join(entry.path, "manifest.json")))
    except OSError as error:
        return f"{path}: {error.strerror}"
    if below:
        return f"{path}: holds {len(below)} recordings: open one of them, as in {path / below[-1]}"
    return f"{path}: not a recording: it has no manifest.json"


def _table(content: bytes, rows: object) -> "pyarrow.Table":
    """A table of a file of Parquet, a few bytes of which can stand for any number of rows.

    Raises ValueError, pyarrow.ArrowException.
    """
    import pyarrow
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
    if not isinstance(rows, int) or file.metadata.num_rows != rows:
        raise ValueError(f"it holds {file.metadata.num_rows} rows and the manifest says {rows}")
    budget = whole = min(LEAST_MEMORY + MEMORY_RATIO * len(content), MOST_MEMORY)
    batches = []
    if rows * 8 * len(file.schema_arrow) > budget:
        raise ValueError(f"its rows take more than {whole >> 20} MiB of memory")
    for batch in file.iter_batches(batch_size=BATCH):
        budget -= batch.nbytes
        if budget < 0:
            raise ValueError(f"its rows take more than {whole >> 20} MiB of memory")
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, schema=file.schema_arrow).combine_chunks()


class Recording(Mapping[str, "pyarrow.Table"]):
    """Tables by name, each a `pyarrow.Table`; read when they are asked for, and checked by length and SHA-256.

    Units are seconds, bytes and counts, and shares are fractions of 1; docs/schema.md tells of each column.
    """

    path: Path
    #: The manifest as it is: host, kernel, cpus, command, labels, notes …
    manifest: dict[str, Any]
    #: The command's exit status, where `run` made this recording.
    status: Optional[int]

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        self.status = None
        self._read: dict[str, "pyarrow.Table"] = {}
        if not (self.path / "manifest.json").exists():
            raise BadRecording(_without_manifest(self.path))
        try:
            manifest = json.loads(_bytes(self.path / "manifest.json", MOST_MANIFEST))
        except ValueError as error:
            raise BadRecording(f"{self.path / 'manifest.json'}: {error}") from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
            raise BadRecording(f"{self.path / 'manifest.json'}: not a manifest of ncpu")
        if manifest.get("format") != FORMAT:
            raise BadRecording(f"{self.path}: format {manifest.get('format')!r}, and this ncpu reads {FORMAT}")
        if manifest.get("complete") is not True:
            raise BadRecording(f"{self.path}: not complete: `ncpu report {self.path}` says what there is of it")
        wrong = [name for name in manifest["files"] if not _NAME.fullmatch(name)]
        if wrong:
            raise BadRecording(f"{self.path}: {wrong[0]!r} is not the name of a table")
        self.manifest = manifest

    def __getitem__(self, table: str) -> "pyarrow.Table":
        import pyarrow
        import pyarrow.parquet

        if table not in self._read:
            if table not in self:
                raise NoTable(f"{table}: {self.path} has {', '.join(self) or 'no table'}")
            told = self.manifest["files"][f"{table}.parquet"]
            path = self.path / f"{table}.parquet"
            content = _bytes(path, MOST_TABLE)
            if not isinstance(told, dict) or hashlib.sha256(content).hexdigest() != told.get("sha256"):
                raise BadRecording(f"{path}: changed since it was recorded")
            try:
                self._read[table] = _table(content, told.get("rows"))
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                raise BadRecording(f"{path}: {error}") from error
        return self._read[table]

    def __iter__(self) -> Iterator[str]:
        return (name[: -len(".parquet")] for name in self.manifest["files"])

    def __len__(self) -> int:
        return len(self.manifest["files"])

    def __contains__(self, table: object) -> bool:
        return f"{table}.parquet" in self.manifest["files"]

    def __repr__(self) -> str:
        return f"<ncpu recording {str(self.path)!r}: {', '.join(self)}>"

    def onion(self) -> "Onion":
        """Where the capacity went: every CPU-second in one layer.

        Raises CommandFailed where this is no recording of a run or watch, or of another version.
        """
        from ._views import Onion

        return Onion(self.report("layers"), title=" ".join(map(str, self.manifest.get("command") or [])) or str(self.path))

    def report(self, table: str = "layers") -> "pyarrow.Table":
        """A table as `ncpu report --table` gives it: summed, named and in its order.

        Raises CommandFailed.
        """
        return ask(["report", "--table", table, "--", self.path])

    def save(self, path: StrPath) -> "Recording":
        """Copies it to a folder that is not there yet; `run` without `record` keeps it only as long as the object.

        Raises NcpuError where it cannot be written.
        """
        saved = Path(path)
        try:
            saved.mkdir(mode=0o700)
            for name in [*self.manifest["files"], "manifest.json"]:
                shutil.copyfile(self.path / name, saved / name, follow_symlinks=False)
        except OSError as error:
            raise NcpuError(f"{error.filename or saved}: {error.strerror}") from error
        return Recording(saved)


def open(path: StrPath) -> Recording:
    """Opens what `ncpu run --record` and others made.

    Raises BadRecording.
    """
    return Recording(path)


def run(
    arguments: Sequence[StrPath],
    *,
    record: Optional[StrPath] = None,
    metric: Optional[str] = None,
    freq: Optional[int] = None,
    options: Sequence[str] = (),
    check: bool = True,
    capture: bool = True,
) -> Recording:
    """Runs a command under `ncpu run` and gives its recording.

    `record` is where it is kept; without it, a folder that goes with the object. `metric` is a pattern that finds units of
    work a second in the command's output, `freq` how often each CPU is sampled a second, `options` more of `ncpu run`.
    The command's output goes nowhere unless `capture` is False. Without root there are fewer layers.

    Raises CommandFailed where the command fails (not if `check` is False) or ncpu cannot run it, and NcpuError where
    `record` is there already.
    """
    folder = None
    if record is not None and os.path.lexists(record):
        raise NcpuError(f"record={os.fspath(record)!r} exists already: name a folder that is not there yet")
    if record is None:
        folder = tempfile.mkdtemp(prefix="ncpu-")
        record = os.path.join(folder, "run.ncpu")
    try:
        wanted = ["run", "--record", os.fspath(record), *options]
        wanted += ["--metric", metric] if metric is not None else []
        wanted += ["-F", str(freq)] if freq is not None else []
        said = start(
            [*wanted, "--", *(os.fspath(argument) for argument in arguments)],
            stdout=subprocess.DEVNULL if capture else None,
        )
        try:
            recording = Recording(record)
        except BadRecording as error:
            raise CommandFailed(words(said.stderr) or str(error), said.returncode) from error
        if said.returncode != 0 and check:
            raise CommandFailed(f"{os.fspath(arguments[0])}: exit status {said.returncode}", said.returncode)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    recording.status = said.returncode
    if folder is not None:
        weakref.finalize(recording, shutil.rmtree, folder, ignore_errors=True)
    return recording
