// Lines of a text are found by `position` over its bytes, and their words counted: useful work, and no list of elements.
use std::time::{Duration, Instant};

fn next_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|b| *b == b'\n')?;
    Some((&text[..end], &text[end + 1..]))
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let text: Vec<u8> = (0..20_000).flat_map(|i| format!("{i} a line of some length with words {}\n", i * 31).into_bytes()).collect();
    let (mut lines, mut longest) = (0u64, 0);
    while Instant::now() < end {
        let mut rest = &text[..];
        while let Some((line, more)) = next_line(rest) {
            lines += 1;
            longest = longest.max(line.len());
            rest = more;
        }
    }
    println!("{lines} lines, longest {longest}");
}
