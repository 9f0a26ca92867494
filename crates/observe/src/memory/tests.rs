//! Both sources on the running machine. Needs root; BPF where there is BTF.

use super::*;

fn open(source: Source) -> Option<Memory> {
    let options = Options { source: Some(source), rows: true, ..Options::default() };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: physical pages are shown to root only");
        return None;
    }
    match Memory::open(&options) {
        Ok(memory) => Some(memory),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

/// The pages of `chunk` whose class differs in both orders of looking, so not for having changed.
fn differing(bpf: &mut Memory, flags: &mut Memory, chunk: &Chunk) -> Vec<(u64, Class, Class, String)> {
    let class = |row: &rows::Row| Class::from_raw(row.class);
    let mut suspects: Option<Vec<u64>> = None;
    let mut last = Vec::new();
    for _ in 0..6 {
        let frames = ExecFrames::find().unwrap();
        bpf.find_exec().unwrap();
        let before = bpf.page_rows(ExecFrames::default(), chunk).unwrap();
        let theirs = flags.page_rows(frames, chunk).unwrap();
        let after = bpf.page_rows(ExecFrames::default(), chunk).unwrap();
        assert_eq!((before.len(), theirs.len()), ((chunk.end - chunk.start) as usize, before.len()));
        last = (0..before.len())
            .filter(|&i| class(&before[i]) == class(&after[i]) && class(&before[i]) != class(&theirs[i]))
            .map(|i| {
                let words = format!("bpf {} | {}", kpf::words(before[i].kpf), kpf::words(theirs[i].kpf));
                (chunk.start + i as u64, class(&before[i]), class(&theirs[i]), words)
            })
            .filter(|d| suspects.as_ref().is_none_or(|s| s.contains(&d.0)))
            .collect();
        if last.is_empty() {
            break;
        }
        suspects = Some(last.iter().map(|d| d.0).collect());
    }
    last
}

#[test]
fn both_sources_agree_page_by_page() {
    let (Some(mut bpf), Some(mut flags)) = (open(Source::Bpf), open(Source::Kpageflags)) else { return };
    let (mut pages, mut differ) = (0, Vec::new());
    let all: Vec<Chunk> = bpf.chunks.clone();
    // 32768 pages of each GiB, so all kinds of memory; all of it would take long on a large machine.
    for chunk in all.iter().filter(|c| c.online).take(64) {
        let end = chunk.end.min(chunk.start + rows::BATCH as u64);
        let chunk = Chunk { end, ..*chunk };
        pages += chunk.end - chunk.start;
        differ.extend(differing(&mut bpf, &mut flags, &chunk));
    }
    // A page may go back and forth in step with the looks; not one in ten thousand does.
    assert!(differ.len() as u64 * 10_000 <= pages, "{} of {pages} pages: {:#?}", differ.len(), &differ[..20]);
}
