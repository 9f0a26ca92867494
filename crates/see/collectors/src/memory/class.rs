//! The purpose of a page, by the bits of `/proc/kpageflags`.

/// Bits of `/proc/kpageflags` (`include/uapi/linux/kernel-page-flags.h`, and above 31 those that
/// `tools/mm/page-types.c` names).
pub mod kpf {
    /// `KPF_REFERENCED`.
    pub const REFERENCED: u64 = 1 << 2;
    /// `KPF_UPTODATE`.
    pub const UPTODATE: u64 = 1 << 3;
    /// `KPF_DIRTY`.
    pub const DIRTY: u64 = 1 << 4;
    /// `KPF_LRU`.
    pub const LRU: u64 = 1 << 5;
    /// `KPF_ACTIVE`.
    pub const ACTIVE: u64 = 1 << 6;
    /// `KPF_SLAB`.
    pub const SLAB: u64 = 1 << 7;
    /// `KPF_WRITEBACK`.
    pub const WRITEBACK: u64 = 1 << 8;
    /// `KPF_BUDDY`: free.
    pub const BUDDY: u64 = 1 << 10;
    /// `KPF_MMAP`: in some process's page tables.
    pub const MMAP: u64 = 1 << 11;
    /// `KPF_ANON`.
    pub const ANON: u64 = 1 << 12;
    /// `KPF_SWAPBACKED`: anonymous or shared memory.
    pub const SWAPBACKED: u64 = 1 << 14;
    /// `KPF_COMPOUND_HEAD`: first page of a folio of several.
    pub const COMPOUND_HEAD: u64 = 1 << 15;
    /// `KPF_COMPOUND_TAIL`: any other page of it.
    pub const COMPOUND_TAIL: u64 = 1 << 16;
    /// `KPF_HUGE`: hugetlb.
    pub const HUGE: u64 = 1 << 17;
    /// `KPF_HWPOISON`: the hardware found it bad.
    pub const HWPOISON: u64 = 1 << 19;
    /// `KPF_NOPAGE`: no such page.
    pub const NOPAGE: u64 = 1 << 20;
    /// `KPF_THP`: transparent huge page, of any size.
    pub const THP: u64 = 1 << 22;
    /// `KPF_OFFLINE`: given back to a hypervisor, by a balloon for one.
    pub const OFFLINE: u64 = 1 << 23;
    /// `KPF_PGTABLE`.
    pub const PGTABLE: u64 = 1 << 26;
    /// `KPF_RESERVED`: never given to the allocator.
    pub const RESERVED: u64 = 1 << 32;

    /// Bits by the names the kernel gives them, in lower case.
    pub const NAMES: [(u32, &str); 37] = [
        (0, "locked"),
        (1, "error"),
        (2, "referenced"),
        (3, "uptodate"),
        (4, "dirty"),
        (5, "lru"),
        (6, "active"),
        (7, "slab"),
        (8, "writeback"),
        (9, "reclaim"),
        (10, "buddy"),
        (11, "mmap"),
        (12, "anon"),
        (13, "swapcache"),
        (14, "swapbacked"),
        (15, "compound_head"),
        (16, "compound_tail"),
        (17, "huge"),
        (18, "unevictable"),
        (19, "hwpoison"),
        (20, "nopage"),
        (21, "ksm"),
        (22, "thp"),
        (23, "offline"),
        (24, "zero_page"),
        (25, "idle"),
        (26, "pgtable"),
        (32, "reserved"),
        (33, "mlocked"),
        (34, "owner_2"),
        (35, "private"),
        (36, "private_2"),
        (37, "owner_private"),
        (38, "arch"),
        (39, "uncached"),
        (40, "softdirty"),
        (41, "arch_2"),
    ];

    /// The names of the bits of `flags`, separated by commas.
    pub fn words(flags: u64) -> String {
        let mut words = String::new();
        for (bit, name) in NAMES {
            if flags >> bit & 1 == 1 {
                if !words.is_empty() {
                    words.push(',');
                }
                words.push_str(name);
            }
        }
        words
    }
}

/// The purpose of a page. The numbers are those of `enum class` in `pages.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// The kernel's, of no kind below.
    Kernel,
    /// In a slab cache.
    Slab,
    /// A page table.
    PageTables,
    /// Anonymous.
    Anon,
    /// Anonymous, in a transparent huge page (a folio of any size above a page).
    AnonThp,
    /// Shared memory: tmpfs, SysV, memfd, shared anonymous.
    Shared,
    /// The same in transparent huge pages.
    SharedThp,
    /// In a hugetlb page, used or in the pool.
    Hugetlb,
    /// Of a file that some process maps executable, as Solaris has it: the whole file's cached pages.
    Exec,
    /// Of another file, mapped.
    Mapped,
    /// Of another file, not mapped.
    Cache,
    /// Free.
    Free,
    /// Reserved at boot: the kernel's image, its array of `struct page`, firmware.
    Reserved,
    /// Bad.
    Poisoned,
    /// Not there for the kernel: ballooned away or in a memory block that is offline.
    Offline,
}

/// How many [`Class`]es.
pub const CLASSES: usize = 15;

impl Class {
    /// All, in the order they are printed.
    pub const ALL: [Class; CLASSES] = [
        Class::Kernel,
        Class::Slab,
        Class::PageTables,
        Class::Anon,
        Class::AnonThp,
        Class::Shared,
        Class::SharedThp,
        Class::Hugetlb,
        Class::Exec,
        Class::Mapped,
        Class::Cache,
        Class::Free,
        Class::Reserved,
        Class::Poisoned,
        Class::Offline,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Class::Kernel => "Kernel",
            Class::Slab => "Slab",
            Class::PageTables => "Page tables",
            Class::Anon => "Anon",
            Class::AnonThp => "Anon (THP)",
            Class::Shared => "Shared",
            Class::SharedThp => "Shared (THP)",
            Class::Hugetlb => "Hugetlb",
            Class::Exec => "Exec and libs",
            Class::Mapped => "File mapped",
            Class::Cache => "Page cache",
            Class::Free => "Free",
            Class::Reserved => "Reserved",
            Class::Poisoned => "Poisoned",
            Class::Offline => "Offline",
        }
    }

    /// The class of a number from BPF; one that is none is [`Class::Kernel`].
    pub fn from_raw(raw: u32) -> Class {
        Class::ALL.get(raw as usize).copied().unwrap_or(Class::Kernel)
    }

    /// Whether it is a page of a file, of whichever kind.
    pub fn is_file(self) -> bool {
        matches!(self, Class::Exec | Class::Mapped | Class::Cache)
    }

    /// The class of a page with these bits of `/proc/kpageflags`; a file's page is [`Class::Mapped`]
    /// or [`Class::Cache`], since no bit tells whether the file is mapped executable.
    #[inline]
    pub fn of(flags: u64) -> Class {
        use kpf::*;
        let thp = |small, huge| if flags & THP == 0 { small } else { huge };
        if flags & (HWPOISON | NOPAGE | OFFLINE | BUDDY | PGTABLE | SLAB | RESERVED | HUGE) != 0 {
            return match () {
                () if flags & HWPOISON != 0 => Class::Poisoned,
                () if flags & BUDDY != 0 => Class::Free,
                () if flags & (NOPAGE | OFFLINE) != 0 => Class::Offline,
                () if flags & PGTABLE != 0 => Class::PageTables,
                () if flags & SLAB != 0 => Class::Slab,
                () if flags & RESERVED != 0 => Class::Reserved,
                () => Class::Hugetlb,
            };
        }
        if flags & ANON != 0 {
            return thp(Class::Anon, Class::AnonThp);
        }
        if flags & SWAPBACKED != 0 {
            return thp(Class::Shared, Class::SharedThp);
        }
        // A page on its way to the LRU lists does not have the flag yet.
        let used = flags & UPTODATE != 0 && flags & (MMAP | REFERENCED | ACTIVE | DIRTY | WRITEBACK) != 0;
        match (flags & LRU != 0 || used, flags & MMAP != 0) {
            (true, true) => Class::Mapped,
            (true, false) => Class::Cache,
            (false, _) => Class::Kernel,
        }
    }
}

/// Classifies pages in order of page frames. A tail has the class of its head, whatever its own bits:
/// up to 6.x kernels tails carry few of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classifier {
    head: Option<Class>,
}

impl Classifier {
    /// The class of the next page.
    #[inline]
    pub fn next(&mut self, flags: u64) -> Class {
        if flags & kpf::COMPOUND_TAIL != 0
            && let Some(class) = self.head
        {
            return class;
        }
        let class = Class::of(flags);
        self.head = (flags & kpf::COMPOUND_HEAD != 0).then_some(class);
        class
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(words: &str) -> u64 {
        words.split(' ').filter(|w| !w.is_empty()).fold(0, |bits, word| {
            bits | 1
                << kpf::NAMES.iter().find(|(_, name)| *name == word).unwrap_or_else(|| panic!("{word}")).0
        })
    }

    #[test]
    fn pages_as_kernels_show_them() {
        for (words, class) in [
            ("", Class::Kernel),
            ("mmap", Class::Kernel),
            ("uptodate", Class::Kernel),
            ("compound_head", Class::Kernel),
            ("slab anon ksm compound_tail", Class::Slab),
            ("uptodate buddy", Class::Free),
            ("referenced pgtable", Class::PageTables),
            ("mmap zero_page reserved", Class::Reserved),
            ("reserved private", Class::Reserved),
            ("uptodate lru mmap anon swapbacked", Class::Anon),
            ("uptodate mmap anon swapbacked", Class::Anon),
            ("uptodate lru mmap anon swapbacked compound_head thp", Class::AnonThp),
            ("referenced uptodate dirty lru swapbacked unevictable", Class::Shared),
            ("uptodate lru swapbacked compound_head thp", Class::SharedThp),
            ("uptodate compound_head huge mmap", Class::Hugetlb),
            ("referenced uptodate lru active mmap private", Class::Mapped),
            ("referenced uptodate mmap", Class::Mapped),
            ("lru private", Class::Cache),
            ("uptodate lru compound_tail thp", Class::Cache),
            ("hwpoison lru uptodate", Class::Poisoned),
            ("offline", Class::Offline),
            ("nopage", Class::Offline),
        ] {
            assert_eq!(Class::of(bits(words)), class, "{words}");
        }
    }

    #[test]
    fn tails_follow_their_head() {
        let mut c = Classifier::default();
        let pages = [
            "uptodate lru swapbacked compound_head thp",
            "compound_tail thp",
            "compound_tail",
            "",
            "compound_tail",
        ];
        let classes = pages.map(|words| c.next(bits(words)));
        use Class::*;
        assert_eq!(classes, [SharedThp, SharedThp, SharedThp, Kernel, Kernel]);
    }

    #[test]
    fn numbers_and_names_agree() {
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!((class as usize, Class::from_raw(i as u32)), (i, class));
        }
        assert_eq!(Class::from_raw(99), Class::Kernel);
        assert_eq!(kpf::words(bits("lru mmap reserved")), "lru,mmap,reserved");
        assert_eq!(kpf::words(0), "");
    }

    proptest! {
        #[test]
        fn every_flag_word_has_a_class(flags in any::<u64>()) {
            let class = Class::of(flags);
            if flags & kpf::BUDDY != 0 && flags & kpf::HWPOISON == 0 {
                prop_assert_eq!(class, Class::Free);
            }
            prop_assert!(class != Class::Exec);
            prop_assert_eq!(Classifier::default().next(flags), class);
        }
    }
}
