# What each collector takes on this kernel, and on the one that could have 2048 CPUs: for the manual, nothing is judged.
NCPU=ncpu many-cpus.sh 3
