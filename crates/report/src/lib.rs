//! The onion: layers, ranking, advice; terminal and HTML.

pub mod html;
pub mod onion;
pub mod topology;
