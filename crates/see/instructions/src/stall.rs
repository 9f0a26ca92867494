//! How much of an instruction's samples are stall.

use crate::code::Code;
use crate::decoded::Kind;

/// Standard errors by which an instruction must have more samples than the others of its block to have stalled.
const CLEARLY: f64 = 2.0;

/// For each instruction, which part of its samples is stall: those beyond what plain instructions of its block have. `counts` are the samples that
/// waited for each instruction. Plain instructions have none.
pub fn stalls(code: &Code, counts: &[u32]) -> Vec<f64> {
    let mut plain = vec![(0u64, 0u64); code.blocks()];
    let all = || code.instructions().iter().zip(counts);
    for (instruction, &count) in all() {
        if instruction.kind == Kind::Plain {
            let (samples, instructions) = &mut plain[instruction.block as usize];
            *samples += u64::from(count);
            *instructions += 1;
        }
    }
    all()
        .map(|(instruction, &count)| {
            let (samples, instructions) = plain[instruction.block as usize];
            if instruction.kind == Kind::Plain || count == 0 {
                return 0.0;
            }
            let n = f64::from(count);
            let base = samples as f64 / (instructions as f64).max(1.0);
            let error = (n + base / (instructions as f64).max(1.0)).sqrt();
            if n - base > CLEARLY * error { (n - base) / n } else { 0.0 }
        })
        .collect()
}
