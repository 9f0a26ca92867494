//! Prints sizes in bytes for people.

/// Binary multiples as in `lgrpinfo`, for columns: 128G, 3.9G, 774M, 512B.
pub fn compact(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let (mut n, mut unit) = (bytes as f64, 0);
    while n >= 1023.5 && unit + 1 < UNITS.len() {
        n /= 1024.0;
        unit += 1;
    }
    let whole = unit == 0 || n >= 9.95 || n.fract() == 0.0;
    if whole { format!("{n:.0}{}", UNITS[unit]) } else { format!("{n:.1}{}", UNITS[unit]) }
}

/// Binary multiples for sentences: 512 B, 4 KiB, 1.5 MiB.
pub fn words(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * step)) as f64;
    if step == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[step])
    } else {
        format!("{value:.1} {}", UNITS[step])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_sentences() {
        let said: Vec<String> =
            [0, 512, 4096, 1536 << 10, 1023 << 20, 4 << 30].into_iter().map(compact).collect();
        assert_eq!(said, ["0B", "512B", "4K", "1.5M", "1023M", "4G"]);
        let said: Vec<String> =
            [0, 1023, 4096, 1536 << 10, 5 << 40, u64::MAX].into_iter().map(words).collect();
        assert_eq!(said, ["0 B", "1023 B", "4 KiB", "1.5 MiB", "5 TiB", "16 EiB"]);
    }
}
