//! Routines of x86-64: SSE2, AVX2 and AVX-512, each with a non-temporal form, and `rep movsb`.
//!
//! Written in assembly: the compiler would turn a loop that copies or clears into a call of `memcpy` or `memset`.

mod processor;
mod rep;
mod vectors;

use super::tuning::Routine;
pub(super) use processor::{caches, rep};
use processor::{has_avx2, has_avx512, prefers_avx512};
use vectors::{avx2, avx512, sse2};

/// All routines, in order of preference.
pub(super) static ROUTINES: &[Routine] = &[
    Routine {
        name: c"avx512",
        vectors: true,
        has: has_avx512,
        prefer: prefers_avx512,
        by_size: (avx512::copy, avx512::zero),
        always: (avx512::blocks, avx512::clear),
        stream: (avx512::stream, avx512::clear_stream),
    },
    Routine {
        name: c"avx2",
        vectors: true,
        has: has_avx2,
        prefer: has_avx2,
        by_size: (avx2::copy, avx2::zero),
        always: (avx2::blocks, avx2::clear),
        stream: (avx2::stream, avx2::clear_stream),
    },
    Routine {
        name: c"sse2",
        vectors: true,
        has: || true,
        prefer: || true,
        by_size: (sse2::copy, sse2::zero),
        always: (sse2::blocks, sse2::clear),
        stream: (sse2::stream, sse2::clear_stream),
    },
    Routine {
        name: c"rep",
        vectors: false,
        has: || true,
        prefer: || false,
        by_size: (sse2::copy, sse2::zero),
        always: (rep::copy, rep::zero),
        stream: (sse2::stream, sse2::clear_stream),
    },
    Routine {
        name: c"avx512-stream",
        vectors: false,
        has: has_avx512,
        prefer: || false,
        by_size: (avx512::copy, avx512::zero),
        always: (avx512::stream, avx512::clear_stream),
        stream: (avx512::stream, avx512::clear_stream),
    },
    Routine {
        name: c"avx2-stream",
        vectors: false,
        has: has_avx2,
        prefer: || false,
        by_size: (avx2::copy, avx2::zero),
        always: (avx2::stream, avx2::clear_stream),
        stream: (avx2::stream, avx2::clear_stream),
    },
    Routine {
        name: c"sse2-stream",
        vectors: false,
        has: || true,
        prefer: || false,
        by_size: (sse2::copy, sse2::zero),
        always: (sse2::stream, sse2::clear_stream),
        stream: (sse2::stream, sse2::clear_stream),
    },
];
