//! Pages by cache colour. Pages are handed out in all colours in turn, so that they do not compete for the
//! same sets of a cache.
//!
//! The kernels of Solaris did this for all processes. On Linux a program that knows the frames of its pages
//! (a hypervisor, or root by `/proc/self/pagemap` on the machine itself) can do it for its own. The caller
//! supplies a frame's colour, since processors choose sets differently.

/// Pages that are free, by colour. For one thread.
///
/// ```
/// use libncpu::colours::Pages;
/// // A cache whose sets hold four pages side by side.
/// let mut pages = Pages::new(4);
/// for frame in [0, 4, 8, 1, 2] {
///     pages.give(frame * 4096, frame % 4);
/// }
/// let four: Vec<usize> = (0..4).filter_map(|_| pages.take()).map(|(page, _)| page / 4096).collect();
/// assert_eq!(four, [8, 1, 2, 4]); // no page of colour 3 is there, so one is doubled
/// ```
#[derive(Clone, Debug)]
pub struct Pages {
    /// By colour; the page given last is taken first, since it is most likely cached.
    lists: Vec<Vec<usize>>,
    /// The next colour to hand out.
    next: usize,
    free: usize,
}

impl Pages {
    /// An empty pool for this number of colours, at least one.
    pub fn new(colours: usize) -> Pages {
        Pages { lists: vec![Vec::new(); colours.max(1)], next: 0, free: 0 }
    }

    /// The number of free pages.
    pub fn len(&self) -> usize {
        self.free
    }

    /// Whether no page is free.
    pub fn is_empty(&self) -> bool {
        self.free == 0
    }

    /// Adds a page, new or taken before, by its address. `colour` is taken modulo the number of colours.
    pub fn give(&mut self, page: usize, colour: usize) {
        let colours = self.lists.len();
        self.lists[colour % colours].push(page);
        self.free += 1;
    }

    /// A page of the next colour, or of the first colour after it that has one, and its colour. `None` if no
    /// page is free.
    pub fn take(&mut self) -> Option<(usize, usize)> {
        let colours = self.lists.len();
        let colour = (0..colours).map(|i| (self.next + i) % colours).find(|&c| !self.lists[c].is_empty())?;
        self.next = (colour + 1) % colours;
        self.take_of(colour).map(|page| (page, colour))
    }

    /// A page of this colour, for data that is to compete with no other data, or only with data of that
    /// colour.
    pub fn take_of(&mut self, colour: usize) -> Option<usize> {
        let page = self.lists.get_mut(colour)?.pop()?;
        self.free -= 1;
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_turns_and_what_is_given_back_is_there_again() {
        let mut pages = Pages::new(8);
        (0..64).for_each(|frame| pages.give(frame << 12, frame));
        let taken: Vec<(usize, usize)> = (0..16).filter_map(|_| pages.take()).collect();
        assert_eq!(taken.iter().map(|t| t.1).collect::<Vec<_>>(), (0..16).map(|i| i % 8).collect::<Vec<_>>());
        assert_eq!(pages.len(), 48);
        for (page, colour) in taken {
            pages.give(page, colour);
        }
        let mut all: Vec<usize> = std::iter::from_fn(|| pages.take()).map(|t| t.0 >> 12).collect();
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
        assert!(pages.is_empty() && pages.take_of(3).is_none() && pages.take_of(99).is_none());
    }
}
