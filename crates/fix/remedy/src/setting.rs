//! Settings of what runs: each can be tried and undone, without a restart of anything.

use std::path::PathBuf;

use ncpu_machine::CpuSet;

use crate::confine;
use crate::journal::{Id, Journal, Undo, chosen, start_of};
use crate::schedule::Schedule;
use crate::sys;
use crate::{Error, Result};

/// Something that a setting changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A file of the kernel and what it is to hold.
    File(PathBuf, String),
    /// The threads of a group that may use exactly `from` get `to`.
    Cpus { group: PathBuf, from: CpuSet, to: CpuSet },
    /// The threads of a process, and of those it has forked, that may use exactly `from` get `to`.
    ProcessCpus { pid: u32, from: CpuSet, to: CpuSet },
    /// The threads of a process, and of those it has forked, that are scheduled as `from` get `to`.
    Schedule { pid: u32, from: Schedule, to: Schedule },
}

/// A setting that can be tried and undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The setting, with its old and its new value.
    pub name: String,
    /// Its effect.
    pub about: String,
    pub(crate) acts: Vec<Act>,
}

/// When a process began.
fn start(pid: u32) -> Result<u64> {
    start_of(pid).ok_or_else(|| Error::Refused(format!("process {pid} has ended")))
}

impl Setting {
    /// The setting that files of the kernel hold values.
    pub fn of_files(name: String, about: &str, files: Vec<(PathBuf, String)>) -> Setting {
        let acts = files.into_iter().map(|(file, value)| Act::File(file, value)).collect();
        Setting { name, about: about.into(), acts }
    }

    /// Sets it; the journal has each act first. Undo with [`restore`]. After an error, `set` has the acts before it.
    ///
    /// # Errors
    /// The kernel refuses a value, or a group or process is gone.
    pub fn set(&self, journal: &mut Journal, set: &mut Vec<Id>) -> Result<()> {
        for act in &self.acts {
            match act {
                Act::File(path, value) => {
                    set.push(journal.will_alone(path, || {
                        let (old, new) = (chosen(&std::fs::read_to_string(path)?).into(), value.clone());
                        Ok(Undo::Setting { path: path.into(), old, new })
                    })?);
                    std::fs::write(path, value).map_err(|e| Error::file(path, e))?;
                }
                Act::Cpus { group, from, to } => {
                    let (cpus, ours) = (from.to_list(), to.to_list());
                    let mut except = Vec::new();
                    set.push(journal.will_alone(group, || {
                        except = confine::with(group, to);
                        Ok(Undo::Confined { group: group.into(), cpus, ours, except: except.clone() })
                    })?);
                    if !confine::change(group, from, to, &except) {
                        let why = "no thread of it may use these CPUs any more";
                        return Err(Error::Refused(format!("{}: {why}", group.display())));
                    }
                }
                Act::ProcessCpus { pid, from, to } => {
                    let has = |cpus: &CpuSet, tid: u32| sys::affinity(tid).is_ok_and(|now| now == *cpus);
                    let except: Vec<u32> =
                        sys::threads_of_family(*pid).into_iter().filter(|tid| has(to, *tid)).collect();
                    let (cpus, ours) = (from.to_list(), vec![to.to_list()]);
                    set.push(journal.will(Undo::Affinity {
                        pid: *pid,
                        start: start(*pid)?,
                        cpus,
                        ours,
                        except,
                    })?);
                    if !confine::each_of(
                        || sys::threads_of_tree(*pid),
                        |tid| has(from, tid) && sys::set_affinity(tid, to).is_ok(),
                    ) {
                        return Err(Error::Refused(format!(
                            "no thread of process {pid} has these CPUs any more"
                        )));
                    }
                }
                Act::Schedule { pid, from, to } => {
                    let has =
                        |which: &Schedule, tid: u32| Schedule::read(tid).is_ok_and(|now| now == Some(*which));
                    let except: Vec<u32> =
                        sys::threads_of_family(*pid).into_iter().filter(|tid| has(to, *tid)).collect();
                    let undo =
                        Undo::Scheduled { pid: *pid, start: start(*pid)?, before: *from, ours: *to, except };
                    set.push(journal.will(undo)?);
                    let mut refused = None;
                    let given =
                        |tid: u32| has(from, tid) && to.set(tid).map_err(|e| refused = Some(e)).is_ok();
                    if !confine::each_of(|| sys::threads_of_tree(*pid), given) {
                        let why = refused
                            .map_or("no thread is scheduled as it was any more".into(), |e| e.to_string());
                        return Err(Error::Refused(format!("process {pid}: {why}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Commands that undo it later, where the setting was left.
    pub fn undoing(&self, before: &[String]) -> Vec<String> {
        let words = self.acts.iter().zip(before).map(|(act, old)| match act {
            Act::File(path, _) => {
                format!("echo '{old}' > {}", ncpu_machine::shell_word(&path.display().to_string()))
            }
            Act::Cpus { group, from, .. } => {
                let file = group.join(if group.join("tasks").exists() { "tasks" } else { "cgroup.threads" });
                let file = ncpu_machine::shell_word(&file.display().to_string());
                format!("xargs -n 1 taskset -pc {} < {file}", from.to_list())
            }
            Act::ProcessCpus { pid, from, .. } => format!("taskset -apc {} {pid}", from.to_list()),
            Act::Schedule { pid, from, to } if from.nice() != to.nice() => {
                format!("renice -n {} -p $(ls /proc/{pid}/task)", from.nice())
            }
            // `chrt` leaves a slice as it is.
            Act::Schedule { pid, .. } => {
                format!("chrt -a -o -p 0 {pid}, or a restart, where a slice was set")
            }
        });
        words.collect()
    }

    /// The values that are set now, one of each act.
    pub fn before(&self) -> Vec<String> {
        let value = |act: &Act| match act {
            Act::File(path, _) => {
                std::fs::read_to_string(path).map_or_else(|_| String::new(), |text| chosen(&text).into())
            }
            Act::Cpus { from, .. } | Act::ProcessCpus { from, .. } => from.to_list(),
            Act::Schedule { from, .. } => from.nice().to_string(),
        };
        self.acts.iter().map(value).collect()
    }
}

/// Puts a setting back.
///
/// # Errors
/// A part cannot be: it stays in the journal.
pub fn restore(journal: &mut Journal, set: &mut Vec<Id>) -> Result<()> {
    while let Some(id) = set.pop() {
        journal.undo_now(id).map_err(Error::Refused)?;
    }
    Ok(())
}

/// Leaves a setting as it is.
///
/// # Errors
/// The journal cannot be written; the setting is undone by the next command.
pub fn leave(journal: &mut Journal, set: &mut Vec<Id>) -> Result<()> {
    while let Some(id) = set.pop() {
        journal.done(id)?;
    }
    Ok(())
}
