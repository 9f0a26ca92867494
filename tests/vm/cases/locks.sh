# Planted contention is found, named and the first: of a kernel lock, and of a mutex of the program.
ncpu locks --kernel -o csv -- fdtorture 2 2 | sed -n '/^lock,/,$p' >kernel.csv
sed -n 2p kernel.csv | grep -qE '^files_struct.file_lock,spinlock,' || fail "not the first: $(cat kernel.csv)"
column caller kernel.csv >callers
has callers 'close_fd|dup'

ncpu locks --user -o csv -- mutex 3 2 >user.csv
sed -n 2p user.csv | grep -qE '^planted_lock,lock,mutex,' || fail "not the first: $(cat user.csv)"
