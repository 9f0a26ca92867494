//! Learns from sets of curves what may be believed of any program: `learn SETS >data/belief.toml`. With a second
//! argument it also prints how well the curves of each family are foretold from the others'.

use std::path::Path;

use ncpu_foresee::curve::belief::Beliefs;
use ncpu_foresee::curve::check;
use ncpu_foresee::curve::set::Sets;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, sets, rest @ ..] = args.as_slice() else {
        return Err("usage: learn SETS [check]".into());
    };
    let mut sets = Sets::read(Path::new(sets), None)?;
    if let Some(step) = rest.get(1).and_then(|s| s.parse().ok()) {
        sets.thin(step);
    }
    let beliefs = Beliefs::learn(&sets);
    println!("{}", beliefs.told());
    if !rest.is_empty() {
        for table in check::tables(&sets, &beliefs) {
            println!("{}", ncpu_table::render_text(&table, 140));
        }
    }
    Ok(())
}
