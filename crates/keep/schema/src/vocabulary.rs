//! Closed sets of words that stand in tables, as enums.

use std::fmt::Debug;
use std::hash::Hash;

/// A closed set of words.
pub trait Vocabulary: Copy + Debug + Eq + Hash + 'static {
    /// Noun for a word of the set, for messages: `idle reason`.
    const WHAT: &'static str;
    /// All of them, in the order of declaration.
    const ALL: &'static [Self];

    /// The word in tables.
    fn name(self) -> &'static str;

    /// One line of documentation.
    fn meaning(self) -> &'static str;

    /// The schema's version that brought it.
    fn since(self) -> u32;

    /// Its place in [`Vocabulary::ALL`].
    fn index(self) -> usize;

    /// The value of a word in a table.
    ///
    /// # Errors
    /// [`Unknown`]: a newer `ncpu` wrote it, or it was never one.
    fn of_name(name: &str) -> Result<Self, Unknown> {
        let unknown = || Unknown { what: Self::WHAT, word: name.into() };
        Self::ALL.iter().copied().find(|w| w.name() == name).ok_or_else(unknown)
    }
}

/// A word that is not in the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`")]
pub struct Unknown {
    /// Noun for the expected set.
    pub what: &'static str,
    /// The word.
    pub word: String,
}

/// Declares a [`Vocabulary`]: `Variant = "word": "meaning"`, and `since N` where it came later than version 1.
macro_rules! vocabulary {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident($what:literal) {
            $( $variant:ident = $word:literal : $meaning:literal $(since $since:literal)? , )+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( #[doc = concat!("`", $word, "`: ", $meaning, ".")] $variant, )+
        }

        impl $name {
            /// All of them, in the order of declaration.
            pub const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];

            /// The word in tables.
            pub const fn name(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }

            /// One line of documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $( $name::$variant => $meaning, )+ }
            }

            /// The value of a word in a table.
            ///
            /// # Errors
            /// [`crate::Unknown`]: a newer `ncpu` wrote it, or it was never one.
            pub fn of_name(name: &str) -> Result<$name, crate::Unknown> {
                <$name as crate::Vocabulary>::of_name(name)
            }
        }

        impl crate::Vocabulary for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [$name] = &$name::ALL;

            fn name(self) -> &'static str {
                $name::name(self)
            }

            fn meaning(self) -> &'static str {
                $name::meaning(self)
            }

            fn since(self) -> u32 {
                match self { $( $name::$variant => crate::vocabulary::since!($($since)?), )+ }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// The version given, else 1.
macro_rules! since {
    () => {
        1
    };
    ($since:literal) => {
        $since
    };
}

pub(crate) use {since, vocabulary};
