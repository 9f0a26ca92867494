//! A recording on disk: write, recover, verify, read, import.
