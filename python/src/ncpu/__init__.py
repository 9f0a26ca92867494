"""Recordings of ncpu as Arrow tables, and the command that makes them.

    >>> import ncpu
    >>> recording = ncpu.open(EXAMPLE)
    >>> recording.manifest["kind"]
    'run'
    >>> "threads" in recording
    True
    >>> table = recording["threads"]    # a pyarrow.Table: .to_pandas(), polars.from_arrow(table), duckdb.from_arrow(table)
    >>> table.num_rows > 0
    True
    >>> onion = recording.onion()
    >>> abs(sum(layer.share for layer in onion) - 1) < 0.001
    True
"""

from ._command import CommandFailed, NcpuError, NotFound, command
from ._recording import BadRecording, NoTable, Recording, open, run
from ._views import Change, Comparison, Layer, Onion, compare

__all__ = [
    "BadRecording",
    "Change",
    "CommandFailed",
    "Comparison",
    "Layer",
    "NcpuError",
    "NoTable",
    "NotFound",
    "Onion",
    "Recording",
    "command",
    "compare",
    "open",
    "run",
]
