#!/bin/bash
# Two computing threads beside other programs that go first; those are started by tests/cases/run.
exec "$2/matrix" "$1"
