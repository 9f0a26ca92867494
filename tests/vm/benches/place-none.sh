# Nothing is done.
how=nothing
. /vm/cases/place.inc
