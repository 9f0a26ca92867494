"""The command `ncpu`: where it is, and what it said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from typing import TYPE_CHECKING, Optional, Sequence

if TYPE_CHECKING:
    import pyarrow


class NcpuError(Exception):
    """What this module raises for what it is given; wrong types of arguments are a TypeError."""


class NotFound(NcpuError):
    """There is no command `ncpu`."""


class CommandFailed(NcpuError):
    """`ncpu` said no. `status` is its exit status, the message what it printed."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def command() -> str:
    """The path of the command: `NCPU` of the environment, that of this package, or the first of `PATH`.

    Raises NotFound.
    """
    named = os.environ.get("NCPU")
    beside = os.path.join(sysconfig.get_path("scripts"), "ncpu")
    for path in (named, beside if os.access(beside, os.X_OK) else None, shutil.which("ncpu")):
        if path:
            return path
    raise NotFound("no command `ncpu`: install the package's wheel, or set NCPU to its path")


def words(stderr: bytes) -> str:
    """The error on standard error: from the last line that begins as those of ncpu do, to the end."""
    lines = [line.rstrip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    begin = max((at for at, line in enumerate(lines) if line.startswith("ncpu: ")), default=len(lines) - 1)
    return "\n".join(lines[max(begin, 0) :])


def start(arguments: Sequence[str], *, stdout: Optional[int]) -> "subprocess.CompletedProcess[bytes]":
    """Runs `ncpu` to its end.

    Raises NotFound.
    """
    try:
        return subprocess.run(
            [command(), *arguments], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, check=False
        )
    except OSError as error:
        raise NotFound(f"{command()}: {error.strerror}") from error


def ask(arguments: Sequence[str | os.PathLike[str]]) -> "pyarrow.Table":
    """The table that `ncpu ARGUMENTS` prints.

    Raises NotFound, CommandFailed.
    """
    import pyarrow
    import pyarrow.json

    # JSON has durations in seconds and shares as fractions of 1, and all digits of a number. In a file, since a pipe may be
    # shared with a command's output.
    with tempfile.TemporaryDirectory(prefix="ncpu-") as folder:
        path = os.path.join(folder, "table.json")
        wanted = [os.fspath(argument) for argument in arguments]
        said = start([wanted[0], "-o", "json", "--output", path, *wanted[1:]], stdout=subprocess.DEVNULL)
        if said.returncode != 0:
            raise CommandFailed(words(said.stderr) or f"ncpu: exit status {said.returncode}", said.returncode)
        if not os.path.getsize(path):
            return pyarrow.table({})
        table = pyarrow.json.read_json(path)
        # The version of the schema, which each line has, is not a column.
        return table.drop_columns(["ncpu_schema"]) if "ncpu_schema" in table.column_names else table
