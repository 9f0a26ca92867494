import sys

import pytest

import ncpu

WORK = "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end: sum(range(1000))\nprint('1000 ops/s')"


@pytest.fixture(scope="session")
def example(tmp_path_factory):
    """A recording of a program that computes, and another."""
    folder = tmp_path_factory.mktemp("recordings")
    return [
        ncpu.run([sys.executable, "-c", WORK], record=folder / f"{name}.ncpu", metric="([0-9]+) ops/s") for name in "ab"
    ]


@pytest.fixture(autouse=True)
def doctests_have_a_recording(doctest_namespace, example):
    doctest_namespace["EXAMPLE"] = example[0].path
