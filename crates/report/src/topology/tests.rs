use std::path::Path;

use ncpu_machine::{Topology, generate, testing};

use super::*;

fn read(name: &str) -> Option<Topology> {
    let dir = tempfile::tempdir().unwrap();
    let root = testing::tree(name, dir.path())?;
    Some(Topology::read(&root).unwrap())
}

#[test]
fn sizes() {
    let sizes = [0, 1023, 1024, 8 << 10, 811_597_824, 4_187_593_113, 128 << 30, (128 << 30) - 1];
    assert_eq!(sizes.map(bytes), ["0", "1023", "1K", "8K", "774M", "3.9G", "128G", "128G"]);
}

#[test]
fn show() {
    let width = std::env::var("W").ok().and_then(|w| w.parse().ok()).unwrap_or(80);
    if let Ok(dir) = std::env::var("SHOW") {
        let t = Topology::read(Path::new(&dir)).unwrap();
        println!("{}", tree(&t, width));
        println!("{}\n{}\n{}", psrinfo(&t), lgrp(&t), numactl(&t));
    }
    let _ = (read, generate::Shape::LARGE);
}
