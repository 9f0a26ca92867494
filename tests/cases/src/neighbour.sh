#!/bin/bash
# Two computing threads beside other programs that go first; those are started by tests/cases/run.
exec "$(dirname "$0")/matrix" "$1"
