"""The onion, and what changed between two sides, as text and for Jupyter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Union

from ._command import ask
from ._recording import Recording, StrPath

if TYPE_CHECKING:
    import pyarrow

_STYLE = (
    "<style>.ncpu td,.ncpu th{text-align:left;vertical-align:top}.ncpu td.n,.ncpu th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".ncpu .bar{display:inline-block;height:.8em;background:#0072b2}.ncpu .rest .bar{background:#999}.ncpu small{color:#666}</style>"
)


@dataclass(frozen=True)
class Layer:
    """A layer of the onion."""

    name: str
    #: Of capacity, a fraction of 1.
    share: float
    #: CPU-seconds, and the error of what was sampled of them.
    seconds: float
    error: float
    #: Whether the capacity could come back.
    recoverable: bool
    #: Times the throughput without this layer, where it could come back.
    gain: Optional[float]
    #: What it consists of, largest first: each with `kind`, `words`, and the names and figures of its kind.
    evidence: tuple[Mapping[str, Any], ...]
    #: The remedies: each with `id` (`ncpu explain ID` has its grounds), `change`, `words` and perhaps a `command`.
    advice: tuple[Mapping[str, Any], ...]


def _known(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arrow gives every object the keys of all kinds: those with a value."""
    return {key: value for key, value in item.items() if value is not None}


class Onion(Sequence[Layer]):
    """Every CPU-second of a recording in one layer: first what could come back, largest first, then the rest."""

    def __init__(self, table: "pyarrow.Table", title: str = "") -> None:
        #: The same as an Arrow table.
        self.table = table
        self.title = title
        self._layers = [
            Layer(
                row["layer"],
                row["share"],
                row["seconds"],
                row["error"] or 0.0,
                row["recoverable"] == "yes",
                row["gain"],
                tuple(_known(item) for item in row["evidence"] or ()),
                tuple(_known(item) for item in row["advice"] or ()),
            )
            for row in table.to_pylist()
        ]

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """A layer by its place or its name."""
        if isinstance(index, str):
            for layer in self._layers:
                if layer.name == index:
                    return layer
            raise KeyError(index)
        return self._layers[index]

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers)

    def __repr__(self) -> str:
        lines = [f"{100 * layer.share:5.1f} %  {layer.seconds:9.3f} CPU-s  {_plain(layer.name)}" for layer in self]
        return "\n".join([*([_plain(self.title)] if self.title else []), *lines])

    def _repr_html_(self) -> str:
        rows = []
        for layer in self:
            gain = f"x{layer.gain:.2f}" if layer.gain is not None else ""
            words = ("; ".join(item["words"] for item in items) for items in (layer.evidence, layer.advice))
            told = "".join(f"<br><small>{escape(text)}</small>" for text in words if text)
            rows.append(
                f'<tr class="{"back" if layer.recoverable else "rest"}"><td>{escape(layer.name)}{told}</td>'
                f'<td class=n>{100 * layer.share:.1f} %</td><td class=n>{layer.seconds:.3f}</td>'
                f'<td><span class=bar style="width:{max(1, round(160 * layer.share))}px"></span></td><td class=n>{gain}</td></tr>'
            )
        return (
            f"{_STYLE}<table class=ncpu><caption>{escape(self.title)}</caption><tr><th>layer</th><th class=n>share</th>"
            f'<th class=n>CPU-s</th><th></th><th class=n>gain</th></tr>{"".join(rows)}</table>'
        )


@dataclass(frozen=True)
class Change:
    """What one figure was on either side, for a unit of work."""

    section: str
    name: str
    unit: str
    per: str
    a: float
    b: float
    change: float
    #: The interval of the change, at 95 % for all figures together.
    low: float
    high: float
    #: grew, shrank, same; or that one recording a side proves nothing.
    verdict: str


class Comparison(Sequence[Change]):
    """What changed from side A to side B; `proven` has what did beyond chance."""

    def __init__(self, table: "pyarrow.Table") -> None:
        self.table = table
        names = ("section", "name", "unit", "per", "a", "b", "change", "low", "high", "verdict")
        self._changes = [Change(*(row[name] for name in names)) for row in table.to_pylist()]

    @property
    def proven(self) -> list[Change]:
        """Figures that grew or shrank by more than runs vary, in the order of the report."""
        return [change for change in self if change.verdict in ("grew", "shrank")]

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._changes[index]

    def __len__(self) -> int:
        return len(self._changes)

    def __repr__(self) -> str:
        shown = self.proven or self._changes[:10]
        return "\n".join(
            f"{_plain(c.section)}: {_plain(c.name)}: {c.a:.4g} -> {c.b:.4g} {c.unit} for {c.per}, {c.verdict}" for c in shown
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(c.section)}</td><td>{escape(c.name)}</td><td class=n>{c.a:.4g}</td><td class=n>{c.b:.4g}</td>"
            f"<td class=n>{c.change:+.3g}</td><td class=n>{c.low:.3g} to {c.high:.3g}</td><td>{escape(c.unit)}</td><td>{escape(c.verdict)}</td></tr>"
            for c in self.proven or self._changes[:10]
        )
        return (
            f"{_STYLE}<table class=ncpu><tr><th>section</th><th>name</th><th class=n>A</th><th class=n>B</th><th class=n>change</th>"
            f"<th class=n>interval</th><th>unit</th><th>verdict</th></tr>{rows}</table>"
        )


Side = Union[Recording, StrPath, Sequence[Union[Recording, StrPath]]]


def compare(a: Side, b: Side, *, work: Optional[str] = None) -> Comparison:
    """What changed between two sides of recordings, as `ncpu diff` tells it; several a side tell change from chance.

    `work` is `A,B`: units of work done in each recording of either side.

    Raises CommandFailed.
    """
    options = ["--work", work] if work is not None else []
    return Comparison(ask(["diff", *options, *_paths(a), "--", *_paths(b)]))


def _paths(side: Side) -> list[str]:
    """Recordings of a side; none may look like an option."""
    some = [side] if isinstance(side, (Recording, str, os.PathLike)) else list(side)
    paths = [os.fspath(one.path if isinstance(one, Recording) else one) for one in some]
    return [f"./{path}" if path.startswith("-") else path for path in paths]


def _plain(text: str) -> str:
    """Names are foreign: what is not printable is written as Python writes it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
