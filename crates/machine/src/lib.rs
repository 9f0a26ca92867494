//! What the machine is, read from /sys and /proc under a root directory.
