//! `ncpu preload`: a command with libncpu's functions in the place of the C library's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Args;
use ncpu_remedy::preload::{self, Places};
use ncpu_remedy::program::{self, Program};
use ncpu_table::{Column, Table};

use crate::table_args::TableArgs;

/// The exit status where the command was not started because of ncpu, as env(1) and timeout(1) have it.
const NOT_STARTED: u8 = 125;

/// Run a command with scalable functions in the place of the C library's
#[derive(Args, Clone, Debug)]
pub struct PreloadArgs {
    /// Show which libraries there are instead
    #[arg(long, short, conflicts_with_all = ["names", "command", "anyway"])]
    list: bool,

    /// Run the command even if the libraries cannot take hold of it: what it starts may be another matter
    #[arg(long)]
    anyway: bool,

    #[command(flatten)]
    rows: TableArgs,

    /// Libraries, with commas between them: getenv, accept, hugepages, locks, populate, stackbias
    #[arg(required_unless_present = "list", value_name = "NAMES")]
    names: Option<String>,

    /// The command and its arguments
    #[arg(
        required_unless_present = "list",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// Purposes of the libraries of this version.
const ABOUT: [(&str, &str); 6] = [
    ("getenv", "getenv without locks, safe beside setenv"),
    ("accept", "connections spread evenly over processes and threads"),
    ("locks", "waits for pthread locks timed, for `ncpu run --preload locks`"),
    ("hugepages", "large memory and stacks on huge pages"),
    ("populate", "memory created, locked and given back by several CPUs"),
    ("stackbias", "stacks of threads at different offsets of a page"),
];

/// `ncpu preload NAMES -- CMD`: becomes CMD, so its exit status is CMD's.
pub fn run(args: &PreloadArgs) -> anyhow::Result<ExitCode> {
    let executable = std::env::current_exe().context("cannot find the path of ncpu, and so its libraries")?;
    let places = Places::of(&executable, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
    if args.list {
        list(&places, &args.rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    match start(args, &places) {
        Ok(never) => match never {},
        Err(error) => {
            say!("ncpu preload: {error:#}");
            let status =
                error.downcast_ref::<program::Error>().map_or(NOT_STARTED, program::Error::exit_status);
            Ok(status.into())
        }
    }
}

fn list(places: &Places, rows: &TableArgs) -> anyhow::Result<()> {
    let all = places.list();
    anyhow::ensure!(
        !all.is_empty(),
        "no libncpu_NAME.so in {places}; NCPU_PRELOAD_DIR names another directory"
    );
    let columns = [
        Column::text("name", "what the library is asked for by"),
        Column::text("for", "what it does"),
        Column::text("path", "its file"),
    ];
    let mut table = Table::builder("libraries", &columns);
    for library in &all {
        let about = ABOUT.iter().find(|(name, _)| *name == library.name).map(|(_, about)| about);
        table.row().text(&library.name).text_opt(about).text(library.path.to_string_lossy());
    }
    rows.print(table.finish())
}

fn start(args: &PreloadArgs, places: &Places) -> anyhow::Result<std::convert::Infallible> {
    let names = args.names.as_deref().unwrap_or_default().split(',').map(str::trim);
    let libraries = names.map(|name| places.find(name)).collect::<Result<Vec<_>, _>>()?;
    let command = args.command.first().context("no command is given")?;
    let path = std::env::var_os("PATH");
    let file = program::find(command, path.as_deref())?;
    let program = Program::look(&file, path.as_deref())?;
    for (library, image) in &libraries {
        let Some(obstacle) = program.obstacle(image) else { continue };
        let what = if program.loaded == program.path {
            program.path.display().to_string()
        } else {
            format!("{}, which interprets {},", program.loaded.display(), program.path.display())
        };
        let obstacle = format!("{} cannot take hold: {what} {obstacle}", library.name);
        if !args.anyway {
            anyhow::bail!("{obstacle}; --anyway runs it nonetheless, for programs that it starts itself");
        }
        say!("ncpu preload: {obstacle}");
        break;
    }
    let libraries: Vec<_> = libraries.into_iter().map(|(library, _)| library).collect();
    let already = std::env::var_os("LD_PRELOAD");
    let value = preload::value(&libraries, already.as_deref(), &program.image)?;
    // Only where it fails does it come back.
    let error = Command::new(&file).arg0(command).args(&args.command[1..]).env("LD_PRELOAD", value).exec();
    Err(program::Error::CannotRun { path: file.display().to_string(), why: error.to_string() }.into())
}
