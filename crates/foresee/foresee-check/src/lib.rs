//! Compares what `ncpu-foresee` predicts with published curves and measurements. Nothing of this is part of `ncpu`.

pub mod curve;
pub mod documents;
