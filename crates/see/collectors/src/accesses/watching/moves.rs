//! Which accesses move a line from one CPU to another, as caches keep it: a CPU that writes a line has it alone, and CPUs
//! that read the line after that share it.

/// One access to a line, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub cpu: u32,
    pub word: u64,
    pub writes: bool,
}

/// Where an access had to take the line from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct From {
    /// The CPU that had modified it.
    pub cpu: u32,
    /// It had written the same word, among others.
    pub same: bool,
}

/// For each access, who had modified the line and had to give it.
pub(super) fn moves(steps: impl IntoIterator<Item = Step>) -> Vec<Option<From>> {
    // The owner and the words that it has written.
    let mut modified: Option<(u32, Vec<u64>)> = None;
    let mut all = Vec::new();
    for step in steps {
        let from = modified.as_ref().filter(|(cpu, _)| *cpu != step.cpu);
        let from = from.map(|(cpu, words)| From { cpu: *cpu, same: words.contains(&step.word) });
        if from.is_some() {
            modified = None;
        }
        if step.writes {
            let (_, words) = modified.get_or_insert_with(|| (step.cpu, Vec::new()));
            if !words.contains(&step.word) {
                words.push(step.word);
            }
        }
        all.push(from);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[(u32, u64, bool)]) -> Vec<Option<(u32, bool)>> {
        let steps = steps.iter().map(|&(cpu, word, writes)| Step { cpu, word, writes });
        moves(steps).into_iter().map(|from| from.map(|from| (from.cpu, from.same))).collect()
    }

    #[test]
    fn a_line_moves_from_the_cpu_that_wrote_it_last() {
        let (read, write) = (false, true);
        assert_eq!(
            of(&[(0, 8, write), (1, 8, write), (0, 8, write)]),
            [None, Some((0, true)), Some((1, true))]
        );
        assert_eq!(of(&[(0, 8, write), (0, 8, write), (0, 8, read)]), [None; 3], "one CPU alone");
        assert_eq!(of(&[(0, 8, read), (1, 8, read), (0, 8, read)]), [None; 3], "nobody writes");
        // The first reader takes it from the writer; the next finds it shared, and so does the writer, until it writes.
        assert_eq!(
            of(&[(0, 8, write), (1, 8, read), (2, 8, read), (0, 8, read), (0, 8, write), (1, 8, read)]),
            [None, Some((0, true)), None, None, None, Some((0, true))]
        );
    }

    #[test]
    fn words_beside_each_other_move_the_line_as_well() {
        let (read, write) = (false, true);
        assert_eq!(
            of(&[(0, 8, write), (1, 16, write), (0, 8, write), (1, 24, read)]),
            [None, Some((0, false)), Some((1, false)), Some((0, false))]
        );
        // Its owner wrote both.
        assert_eq!(of(&[(0, 8, write), (0, 16, write), (1, 8, write)]), [None, None, Some((0, true))]);
    }
}
