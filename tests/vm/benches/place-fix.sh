# A program that was placed wrongly, by a mask of one CPU that it inherited: `ncpu fix` finds it unasked.
mask=$(busybox taskset -p $$ | sed 's/.*: //')
busybox taskset -p 1 $$ >/dev/null
ncpu fix --rounds 4 --for 100 --metric 'did ([0-9]+)' -- cyclops 4 1 1 2 >path 2>notes || fail "$(cat notes path)"
busybox taskset -p "$mask" $$ >/dev/null
cat path
sed -n '/^x[0-9].* by:/,$p' path >found
has found 'taskset -c 0-|place (spread|balance|local)'
