//! The onion: layers, ranking, advice; terminal and HTML.

pub mod topology;
