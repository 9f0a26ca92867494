//! This program's own stack is unwound and named. It is a program of its own, as all tests of one share the time for reading
//! its symbols.

use std::path::Path;

use ncpu_symbols::{Copied, ProcMaps, Unwinding, User};

/// Registers and the stack up to `end`, at a moment in the calling function.
#[inline(never)]
fn here(end: u64) -> Copied {
    let (ip, sp, bp): (u64, u64, u64);
    // Of AArch64 alone.
    #[cfg(target_arch = "aarch64")]
    let lr: u64;
    #[cfg(target_arch = "x86_64")]
    let lr = 0;
    // SAFETY: reads registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
    }
    // SAFETY: reads registers.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30", out(reg) ip, out(reg) sp, out(reg) bp, out(reg) lr);
    }
    // SAFETY: the words lie on this thread's stack.
    let words = (sp..end).step_by(8).map(|at| unsafe { std::ptr::read_volatile(at as *const u64) }).collect();
    Copied { regs: [ip, sp, bp, lr], words, ..Copied::default() }
}

#[inline(never)]
fn outer(stale: u64, end: u64) -> Copied {
    // Looks like a return address, but is not one.
    let kept = std::hint::black_box([stale; 4]);
    let out = here(end);
    std::hint::black_box(kept);
    out
}

#[inline(never)]
fn outermost(stale: u64, end: u64) -> Copied {
    let out = outer(stale, end);
    std::hint::black_box(&out);
    out
}

/// The end of this thread's stack.
fn end_of_stack() -> u64 {
    let (mut base, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: a zeroed attribute is filled in, read and freed.
    unsafe {
        let mut of: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut of), 0);
        assert_eq!(libc::pthread_attr_getstack(&raw const of, &raw mut base, &raw mut size), 0);
        libc::pthread_attr_destroy(&raw mut of);
    }
    base as u64 + size as u64
}

#[test]
fn callers_are_found_and_left_overs_are_not() {
    let stale = Unwinding::unwind as *const () as u64 + 1;
    let copy = outermost(stale, end_of_stack());
    assert!(copy.words.contains(&stale));
    let mut maps = ProcMaps::new(Path::new("/"));
    let mut unwinding = Unwinding::default();
    let unwound = unwinding.unwind(&mut maps, std::process::id(), &copy);
    assert!(unwound.frames.len() >= 3, "{unwound:x?}");
    assert!(!unwound.frames.contains(&stale), "{unwound:x?}");
    assert_eq!(unwound.words.len() + 1, unwound.frames.len());
    let mut user = User::new();
    let at: Vec<u64> = unwound.frames.iter().enumerate().map(|(i, a)| a - u64::from(i > 0)).collect();
    let names = user.symbolize(&mut maps, std::process::id(), &at);
    for (name, end) in names.iter().zip(["own_stack::here", "own_stack::outer", "own_stack::outermost"]) {
        assert!(name.ends_with(end), "{names:?}");
    }
    for (frame, word) in unwound.frames[1..].iter().zip(&unwound.words) {
        assert_eq!(word.map(|w| copy.words[w]), Some(*frame));
    }
    // No word beyond the copy is read, and malformed data ends at once.
    let none = Copied { words: Vec::new(), ..copy.clone() };
    assert_eq!(unwinding.unwind(&mut maps, std::process::id(), &none).frames, [copy.regs[0]]);
    let nonsense = Copied { regs: [8, 16, 24, 0], ..copy };
    let unwound = unwinding.unwind(&mut maps, std::process::id(), &nonsense);
    assert_eq!((unwound.frames, unwound.whole), (vec![8], false));
}

#[test]
fn a_thread_is_unwound_to_its_beginning() {
    let copy = std::thread::spawn(|| outer(0, end_of_stack())).join().expect("a copy");
    let mut maps = ProcMaps::new(Path::new("/"));
    let unwound = Unwinding::default().unwind(&mut maps, std::process::id(), &copy);
    assert!(unwound.whole && unwound.frames.len() > 5, "{unwound:x?}");
    // The same with half of the copy.
    let cut = Copied { words: copy.words[..copy.words.len() / 2].to_vec(), ..copy };
    assert!(
        unwound.frames.starts_with(&Unwinding::default().unwind(&mut maps, std::process::id(), &cut).frames)
    );
}
