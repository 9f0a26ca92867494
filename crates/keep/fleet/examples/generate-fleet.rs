//! Generates a fleet of recordings: `generate-fleet DIR MACHINES EACH BEGIN [SEED.ncpu…]`, BEGIN in seconds
//! since 1970, an hour between recordings. Also writes `DIR/hosts.csv` for `ncpu fleet add --labels`.

use std::path::{Path, PathBuf};

#[allow(dead_code)]
#[path = "../tests/common/generate.rs"]
mod generate;

use generate::Plan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, machines, each, begin, seeds @ ..] = &arguments[..] else {
        return Err("usage: generate-fleet DIR MACHINES EACH BEGIN [SEED.ncpu…]".into());
    };
    let mut seeds: Vec<PathBuf> = seeds.iter().map(PathBuf::from).collect();
    if seeds.is_empty() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds");
        seeds = ["build", "torture", "files"].map(|name| own.join(name)).to_vec();
    }
    let plan = Plan {
        seeds,
        machines: machines.parse()?,
        each: each.parse()?,
        begin: begin.parse()?,
        step: 3600.0,
        planted: true,
        seed: 1,
    };
    let dir = Path::new(dir);
    plan.write(dir, std::thread::available_parallelism()?.get())?;
    std::fs::write(dir.join("hosts.csv"), plan.labels())?;
    Ok(())
}
