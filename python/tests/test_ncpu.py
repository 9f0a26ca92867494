import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ncpu

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_those_of_the_files(example):
    import pyarrow.parquet

    recording = example[0]
    for name, table in recording.items():
        assert table.equals(pyarrow.parquet.read_table(recording.path / f"{name}.parquet"))
    assert recording.manifest["command"][0] == sys.executable
    assert recording.status == 0


def test_the_onion_is_what_report_prints(example):
    said = subprocess.run(
        [ncpu.command(), "report", example[0].path, "-o", "json"], check=True, capture_output=True, text=True
    ).stdout
    told = [json.loads(line) for line in said.splitlines()]
    onion = example[0].onion()
    assert [layer.name for layer in onion] == [row["layer"] for row in told]
    assert [layer.seconds for layer in onion] == [row["seconds"] for row in told]
    # Evidence and advice are objects; those of Arrow have the keys of all kinds, those of a layer their own.
    for layer, row in zip(onion, told):
        kept = [{key: value for key, value in item.items() if value is not None} for item in row["evidence"]]
        assert list(layer.evidence) == kept
        assert [advice["id"] for advice in layer.advice] == [advice["id"] for advice in row["advice"]]
    assert any(item["kind"] == "processes" for item in onion["user code"].evidence)
    # How much is for the machine to say, which others may use.
    assert onion["user code"].share > 0
    with pytest.raises(KeyError):
        onion["no such layer"]


def test_other_libraries_take_the_tables(example):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    threads = example[0]["threads"]
    assert isinstance(threads.to_pandas(), pandas.DataFrame)
    assert polars.from_arrow(threads).height == threads.num_rows
    assert duckdb.sql("SELECT count(*) FROM threads").fetchall() == [(threads.num_rows,)]


def test_jupyter_shows_names_as_text(example):
    onion = example[0].onion()
    onion.title = "<script>alert(1)</script>"
    page = onion._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert page.count("<tr class=") == len(onion)
    onion.title = "\x1b[31m\u202e"
    assert "\x1b" not in repr(onion) and "\u202e" not in repr(onion)


def test_two_recordings_compare(example):
    a, b = example
    changes = ncpu.compare(a, b.path)
    assert {"layers"} <= {change.section for change in changes}
    assert changes.proven == [], "one recording a side proves nothing"
    assert "<table" in changes._repr_html_() and "user code" in repr(changes)
    assert {c.a for c in ncpu.compare(a, a) if c.name == "user code"} == {c.b for c in ncpu.compare(a, a) if c.name == "user code"}


def test_errors_say_what_is_wrong(example, tmp_path, monkeypatch):
    recording = example[0]
    with pytest.raises(ncpu.NoTable, match="no_such_table: .*threads"):
        recording["no_such_table"]
    there = recording.save(tmp_path / "there.ncpu").path
    with pytest.raises(ncpu.NcpuError, match="there.ncpu"):
        recording.save(there)
    # Nothing is run, and what was there is not taken for what the command did.
    with pytest.raises(ncpu.NcpuError, match="exists already") as exists:
        ncpu.run(["touch", tmp_path / "ran"], record=there)
    assert not isinstance(exists.value, ncpu.CommandFailed) and not (tmp_path / "ran").exists()
    with pytest.raises(ncpu.BadRecording, match="holds 1 recordings: open one of them, as in .*there.ncpu"):
        ncpu.open(tmp_path)
    with pytest.raises(ncpu.BadRecording, match="nowhere: No such file"):
        ncpu.open(tmp_path / "nowhere")
    # The whole error, not its last line.
    with pytest.raises(ncpu.CommandFailed, match="--no-such-option") as failed:
        ncpu.run(["true"], options=["--no-such-option"])
    assert str(failed.value).startswith("ncpu: ")
    monkeypatch.setenv("NCPU", str(tmp_path / "no-ncpu"))
    with pytest.raises(ncpu.NotFound, match="no-ncpu: No such file"):
        ncpu.run(["true"])


def test_a_few_bytes_that_stand_for_many_rows_are_refused(example, tmp_path):
    import hashlib

    import pyarrow
    import pyarrow.parquet

    place = example[0].save(tmp_path / "bomb.ncpu").path
    # One text, 2 MB long, in 2,000 rows, and one number in 10^8.
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int32()), ["x" * 2_000_000])
    pyarrow.parquet.write_table(pyarrow.table({"thread": texts.cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))}),
                                place / "threads.parquet", store_schema=False)
    manifest = json.loads((place / "manifest.json").read_text())
    content = (place / "threads.parquet").read_bytes()
    assert len(content) < 5_000_000
    manifest["files"]["threads.parquet"] = {"rows": 2000, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ncpu.BadRecording, match="MiB of memory"):
        ncpu.open(place)["threads"]
    manifest["files"]["threads.parquet"]["rows"] = 3
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ncpu.BadRecording, match="holds 2000 rows and the manifest says 3"):
        ncpu.open(place)["threads"]


def test_a_command_that_fails(tmp_path):
    with pytest.raises(ncpu.CommandFailed, match="exit status 3") as failed:
        ncpu.run(["sh", "-c", "exit 3"])
    assert failed.value.status == 3
    assert ncpu.run(["sh", "-c", "exit 3"], check=False).status == 3
    with pytest.raises(ncpu.CommandFailed, match="no-such-command") as failed:
        ncpu.run(["/no-such-command"], record=tmp_path / "x.ncpu", check=False)
    assert failed.value.status == 127
    with pytest.raises(ncpu.CommandFailed):
        ncpu.run(["true"], record=tmp_path / "missing" / "x.ncpu")


def test_what_is_not_kept_goes_and_what_is_saved_stays(tmp_path):
    recording = ncpu.run(["true"])
    folder = recording.path.parent
    saved = recording.save(tmp_path / "kept.ncpu")
    with pytest.raises(ncpu.NcpuError, match="File exists"):
        recording.save(tmp_path / "kept.ncpu")
    del recording
    gc.collect()
    assert not folder.exists()
    assert saved.onion().table.num_rows > 0


def copy(example, tmp_path):
    return shutil.copytree(example[0].path, tmp_path / "copy.ncpu")


def manifest(path, **changes):
    file = path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_bad_recordings(example, tmp_path):
    with pytest.raises(ncpu.BadRecording, match="No such file"):
        ncpu.open(tmp_path / "none")
    with pytest.raises(ncpu.BadRecording, match="Not a directory"):
        ncpu.open(__file__)
    path = copy(example, tmp_path)
    good = json.loads((path / "manifest.json").read_text())

    (path / "threads.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    recording = ncpu.open(path)
    with pytest.raises(ncpu.BadRecording, match="changed since"):
        recording["threads"]
    with pytest.raises(KeyError, match="no_such"):
        recording["no_such"]

    # A planted link: what it leads to is not read.
    (path / "threads.parquet").unlink()
    (path / "threads.parquet").symlink_to(example[0].path / "threads.parquet")
    with pytest.raises(ncpu.BadRecording):
        ncpu.open(path)["threads"]

    for changes, says in [
        ({"format": 2}, "format 2"),
        ({"complete": False}, "not complete"),
        ({"files": []}, "not a manifest"),
        ({"files": {"../x.parquet": {}}}, "not the name of a table"),
        ({"files": {"threads.parquet": None}}, None),
    ]:
        manifest(path, **{**good, **changes})
        if says is None:
            (path / "threads.parquet").unlink()
            shutil.copy(example[0].path / "threads.parquet", path)
            with pytest.raises(ncpu.BadRecording):
                ncpu.open(path)["threads"]
        else:
            with pytest.raises(ncpu.BadRecording, match=says):
                ncpu.open(path)
    for text in ["", "[]", "{", '{"format": 1}', "null", "\x00"]:
        (path / "manifest.json").write_text(text)
        with pytest.raises(ncpu.BadRecording):
            ncpu.open(path)
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")
    with pytest.raises(ncpu.BadRecording):
        ncpu.open(path)


def test_a_recording_of_something_else_has_no_onion(example, tmp_path):
    path = copy(example, tmp_path)
    manifest(path, kind="locks", files={})
    with pytest.raises(ncpu.CommandFailed, match="copy.ncpu"):
        ncpu.open(path).onion()


def test_a_path_like_an_option_is_a_path(example, tmp_path, monkeypatch):
    shutil.copytree(example[0].path, tmp_path / "--version")
    monkeypatch.chdir(tmp_path)
    assert len(ncpu.open("--version").onion()) == len(example[0].onion())
    assert len(ncpu.compare("--version", "--version")) > 0


def test_without_the_command(monkeypatch, example):
    monkeypatch.delenv("NCPU", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    with pytest.raises(ncpu.NotFound, match="NCPU"):
        example[0].onion()
    assert ncpu.open(example[0].path)["threads"].num_rows > 0, "tables need no command"


def test_the_notebook_runs():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("<table class=ncpu" in str(output.get("data", {}).get("text/html", "")) for output in shown)
