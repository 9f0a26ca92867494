# Names are sorted by the order of a language again and again: collation.sh SECS.
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
localedef -i en_US -f UTF-8 "$to/en_US.UTF-8" 2>/dev/null
awk 'BEGIN { srand(5); for (i = 0; i < 300000; i++) printf "%s-%c%d %d\n", substr("alphaBetagammaZuluOmega", 1 + int(rand() * 18), 5), 97 + int(rand() * 26), rand() * 1e6, i }' >"$to/names"
end=$(($(date +%s) + $1))
while [ "$(date +%s)" -lt "$end" ]; do LOCPATH="$to" LC_ALL=en_US.UTF-8 sort --parallel=1 -o /dev/null "$to/names"; done
