//! `lockutil -n NCPU [--elapsed S] [--all] [--record DIR] FILE`: the CPU-util of every busy-wait in a file of
//! lockstat output. `--all` shows every event, `--record` stores them as a recording.

use std::error::Error;
use std::path::{Path, PathBuf};

use ncpu_record::lockstat::{import, lockstat_table, render_lockutil};
use ncpu_record::{Manifest, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut ncpu, mut elapsed, mut all, mut record, mut path) = (0, None, false, None, PathBuf::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "-n" => ncpu = value()?.parse()?,
            "--elapsed" => elapsed = Some(value()?.parse()?),
            "--all" => all = true,
            "--record" => record = Some(value()?),
            _ => path = arg.into(),
        }
    }
    let file = match import(&path, ncpu, elapsed) {
        Ok(file) => file,
        Err(e) => {
            eprintln!("lockutil: {e}");
            std::process::exit(1);
        }
    };
    let table = lockstat_table(&file);
    match all {
        true => print!("{}", ncpu_table::render_text(&table, 120)),
        false => print!("{}", render_lockutil(&file)),
    }
    for note in &file.notes {
        eprintln!("lockutil: {}: {note}", file.path.display());
    }
    if let Some(dir) = record {
        let mut writer = Writer::create(
            Path::new(&dir),
            Manifest::new(ncpu_schema::Purpose::Lockstat, ncpu, Vec::new(), 0.0),
        )?;
        writer.append(&table)?;
        writer.finish()?;
    }
    Ok(())
}
