//! Static tracepoints (USDT) of libncpu's locks, found where SystemTap's `<sys/sdt.h>` notes them.

use ncpu_files::reader::Source;
use ncpu_symbols::{Sections, Segments};

/// `enum user_lock` and `enum user_event` of engine.h.
const KNOWN: [(&str, u64, u64); 9] = [
    ("mutex_slow", 1, 0),
    ("mutex_acquired", 1, 1),
    ("mutex_abandoned", 1, 1),
    ("queue_slow", 2, 0),
    ("queue_acquired", 2, 1),
    ("read_slow", 3, 0),
    ("read_acquired", 3, 1),
    ("write_slow", 4, 0),
    ("write_acquired", 4, 1),
];

/// Bytes of all notes of a file: those of a Java virtual machine, which has hundreds of tracepoints, are 40,000.
const MAX_NOTES: usize = 1 << 20;

/// A place in a file at which a wait for a lock begins or ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub name: &'static str,
    /// Where the instruction is in the file.
    pub offset: u64,
    /// Offset in the file of the counter by which the program sees that it is traced; 0: no counter.
    pub semaphore: u64,
    /// `USER_COOKIE` of engine.h.
    pub cookie: u64,
}

/// The tracepoints of libncpu's locks in a program or library; empty for a file that is not ELF.
///
/// # Errors
/// The file cannot be read, or its notes make no sense.
pub(super) fn probes(file: &Source) -> Result<Vec<Probe>, String> {
    let Some(sections) = Sections::read(file) else { return Ok(Vec::new()) };
    let Some((range, _)) = sections.named(".note.stapsdt") else { return Ok(Vec::new()) };
    let size = usize::try_from(range.end - range.start).ok().filter(|size| *size <= MAX_NOTES);
    let mut notes =
        vec![0; size.ok_or_else(|| format!("its notes of tracepoints are longer than {MAX_NOTES} bytes"))?];
    file.read_exact_at(&mut notes, range.start).map_err(|e| format!(".note.stapsdt: {e}"))?;
    let base = sections.named(".stapsdt.base").map(|(_, address)| address);
    let segments = Segments::read(file).unwrap_or_default();
    let in_file = |address: u64| segments.offset(address);
    let mut found = Vec::new();
    for note in Notes(&notes).filter(|n| n.provider == b"ncpu") {
        let Some(&(name, lock, event)) = KNOWN.iter().find(|(name, ..)| name.as_bytes() == note.name) else {
            continue;
        };
        // Moved since it was linked (prelink), all moved as one.
        let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
        let offset = in_file(note.address.wrapping_add(moved));
        let offset = offset.ok_or_else(|| format!("tracepoint {name} lies outside of the file"))?;
        let semaphore = match note.semaphore {
            0 => 0,
            address => in_file(address.wrapping_add(moved))
                .ok_or_else(|| format!("the semaphore of tracepoint {name} lies outside of the file"))?,
        };
        let arguments = String::from_utf8_lossy(note.arguments);
        let first = arguments.split(' ').next().unwrap_or("");
        let register = register(first)
            .ok_or_else(|| format!("tracepoint {name} has its lock in `{first}`, not in a register"))?;
        found.push(Probe { name, offset, semaphore, cookie: register << 16 | lock << 8 | event });
    }
    Ok(found)
}

/// Where in `struct pt_regs` the register is that an operand such as `8@%rdi` names.
fn register(operand: &str) -> Option<u64> {
    let (size, place) = operand.split_once('@')?;
    if !matches!(size, "8" | "-8") {
        return None;
    }
    if cfg!(target_arch = "aarch64") {
        let n: u64 = place.strip_prefix('x')?.parse().ok()?;
        return (n < 31).then_some(n * 8);
    }
    const ORDER: [&str; 15] = [
        "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
    ];
    let name = place.strip_prefix('%')?;
    ORDER.iter().position(|r| *r == name).map(|n| n as u64 * 8)
}

struct Note<'d> {
    address: u64,
    base: u64,
    semaphore: u64,
    provider: &'d [u8],
    name: &'d [u8],
    arguments: &'d [u8],
}

/// The notes of type stapsdt in a section of notes; ends where they make no sense.
struct Notes<'d>(&'d [u8]);

impl<'d> Iterator for Notes<'d> {
    type Item = Note<'d>;

    fn next(&mut self) -> Option<Note<'d>> {
        loop {
            let word = |at: usize| {
                let bytes = self.0.get(at..at + 4)?;
                Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
            };
            let (owner_size, size, kind) = (word(0)?, word(4)?, word(8)?);
            let rest = &self.0[12..];
            let owner = rest.get(..owner_size)?;
            let rest = rest.get(owner_size.next_multiple_of(4)..)?;
            let description = rest.get(..size)?;
            // The last may do without its padding.
            self.0 = rest.get(size.next_multiple_of(4)..).unwrap_or(&[]);
            if owner == b"stapsdt\0" && kind == 3 {
                return read(description);
            }
        }
    }
}

fn read(description: &[u8]) -> Option<Note<'_>> {
    let address = |n: usize| {
        let bytes = description.get(8 * n..8 * n + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let mut words = description.get(24..)?.split(|&b| b == 0);
    Some(Note {
        address: address(0)?,
        base: address(1)?,
        semaphore: address(2)?,
        provider: words.next()?,
        name: words.next()?,
        arguments: words.next()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(name: &str, arguments: &str) -> Vec<u8> {
        let mut description: Vec<u8> =
            [0x1234u64, 0x5000, 0x6000].iter().flat_map(|a| a.to_ne_bytes()).collect();
        for word in ["ncpu", name, arguments] {
            description.extend(word.as_bytes());
            description.push(0);
        }
        let mut out = Vec::new();
        for word in [8, description.len() as u32, 3] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(b"stapsdt\0");
        out.extend(&description);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn notes_are_read_one_after_the_other() {
        let mut bytes = note("mutex_slow", "8@%rdi 8@%rax");
        // Another's note lies between.
        bytes.extend([4u32, 3, 3].iter().flat_map(|w| w.to_ne_bytes()));
        bytes.extend(b"GNU\0abc\0");
        bytes.extend(note("read_slow", "8@%rbx"));
        let found: Vec<(String, u64, String)> = Notes(&bytes)
            .map(|n| {
                let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                assert_eq!((n.provider, n.base, n.semaphore), (&b"ncpu"[..], 0x5000, 0x6000));
                (text(n.name), n.address, text(n.arguments))
            })
            .collect();
        assert_eq!(
            found,
            [
                ("mutex_slow".into(), 0x1234, "8@%rdi 8@%rax".into()),
                ("read_slow".into(), 0x1234, "8@%rbx".into())
            ]
        );
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn operands_name_registers() {
        assert_eq!(register("8@%rdi"), Some(112));
        assert_eq!(register("8@%r15"), Some(0));
        for not in ["", "8@", "4@%edi", "8@$5", "8@8(%rsp)", "8@%xmm0", "%rdi"] {
            assert_eq!(register(not), None, "{not}");
        }
    }

    #[test]
    fn this_test_has_libncpus_tracepoints() {
        // Links them in.
        let mutex = libncpu::Mutex::new(0);
        *mutex.lock() += 1;
        let me = std::env::current_exe().expect("own path");
        let found = probes(&Source::open(&me).expect("own file")).expect("a good file");
        for name in ["mutex_slow", "mutex_acquired", "mutex_abandoned"] {
            let probe = found.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("{name}: {found:?}"));
            let bytes = std::fs::read(&me).expect("own file");
            assert_eq!(bytes[probe.offset as usize], 0x90, "{name} is a nop");
        }
        assert_eq!(probes(&Source::open("/etc/passwd".as_ref()).expect("a file")), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_notes_or_not(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..100) {
            prop_assert!(Notes(&bytes).count() <= bytes.len());
            let whole = note("mutex_slow", "8@%rdi");
            let cut = &whole[..whole.len().min(cut)];
            prop_assert!(Notes(cut).count() <= 1);
        }
    }
}
