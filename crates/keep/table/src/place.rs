//! Positions in files that people write.

/// Line and column of a byte, from 1; the column counts characters. A byte after the end has the end's
/// position.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_count_from_one() {
        let places = [0, 2, 3, 5, 6, 99].map(|at| place("aé\nbü", at));
        assert_eq!(places, [(1, 1), (2, 3), (1, 3), (2, 2), (2, 3), (2, 3)]);
    }
}
