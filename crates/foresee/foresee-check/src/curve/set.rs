//! Sets of measured curves: a small TOML file each that says what the points are of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ncpu_table::{Table, Type};
use serde::Deserialize;

use super::fit::Point;
use super::law::{At, Change};
use ncpu_foresee::hardware::{Hardware, Order};
use ncpu_foresee::machines;

/// Errors in a set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not a set.
    #[error("{path}: {why}", path = path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The error, and its place.
        why: String,
    },
    /// The points cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Data {
        /// The set that names them.
        path: PathBuf,
        /// The error.
        source: ncpu_table::Error,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    family: String,
    kind: Option<String>,
    data: Option<String>,
    machine: String,
    #[serde(default)]
    order: OrderName,
    busy: Option<f64>,
    most: Option<f64>,
    n: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    series: Option<String>,
    value: Option<String>,
    #[serde(default)]
    curves: Vec<String>,
    #[serde(default)]
    points: BTreeMap<String, Vec<(f64, f64)>>,
    #[serde(default)]
    what_if: Vec<WhatIfFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfFile {
    before: String,
    after: String,
    fix: String,
    #[serde(default)]
    alone: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    #[default]
    Spread,
    Pack,
    Fill,
}

/// A curve of a set.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its set: the file's name.
    pub set: String,
    /// Curves of a family are of one origin and count as one.
    pub family: String,
    /// Families of one kind are of similar programs [default: the family's name].
    pub kind: String,
    /// Which group of the file's rows, where it has several.
    pub group: String,
    /// Which curve of the group.
    pub name: String,
    /// N, throughput, in the order of N.
    pub points: Vec<Point>,
}

impl Curve {
    /// How many of its points have N of at most the largest over `beyond`; `None` where there are fewer than two, or no others.
    pub fn split(&self, beyond: f64) -> Option<usize> {
        let most = self.points.last()?.0.n;
        let fitted = self.points.iter().filter(|p| p.0.n <= most / beyond).count();
        (fitted >= 2 && fitted < self.points.len()).then_some(fitted)
    }
}

/// A curve before a change and after it.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// Before, an index into the curves.
    pub before: usize,
    /// After it.
    pub after: usize,
    /// The change.
    pub fix: Change,
    /// Nothing but what is changed was measured: a benchmark of one lock.
    pub alone: bool,
}

/// Curves and changes.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The curves of all sets.
    pub curves: Vec<Curve>,
    /// The changes.
    pub what_ifs: Vec<WhatIf>,
    /// Sets left out, and why.
    pub missing: Vec<String>,
}

impl Sets {
    /// Reads a set, or every `*.toml` of a directory. The data files that the sets name are in the directory `data`, or
    /// beside the sets; sets with a missing file are left out.
    ///
    /// # Errors
    /// A file is not a set, or its data is not a table.
    pub fn read(path: &Path, data: Option<&Path>) -> Result<Sets, Error> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut files = Vec::new();
        if path.is_dir() {
            for entry in std::fs::read_dir(path).map_err(io)? {
                let file = entry.map_err(io)?.path();
                if file.extension().is_some_and(|e| e == "toml") {
                    files.push(file);
                }
            }
            files.sort();
        } else {
            files.push(path.to_path_buf());
        }
        let mut sets = Sets::default();
        for file in &files {
            sets.add(file, data)?;
        }
        Ok(sets)
    }

    /// Keeps one curve in `step`, and no changes: for trials.
    pub fn thin(&mut self, step: usize) {
        let mut at = 0;
        self.what_ifs.clear();
        self.curves.retain(|c| {
            at += 1;
            !matches!(c.family.as_str(), "litl" | "postgres") || at % step == 0
        });
    }

    fn add(&mut self, path: &Path, data: Option<&Path>) -> Result<(), Error> {
        let wrong = |why: String| Error::Wrong { path: path.into(), why };
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let file: File = toml::from_str(&text).map_err(|e| wrong(ncpu_foresee::place::wrong(&text, &e)))?;
        let hardware = machines::find(&file.machine, None).map_err(|e| wrong(e.to_string()))?;
        let set = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let from = self.curves.len();
        let mut curves: BTreeMap<(String, String), Vec<(f64, f64)>> = file
            .points
            .iter()
            .map(|(name, points)| ((String::new(), name.clone()), points.clone()))
            .collect();
        if let Some(name) = &file.data {
            let beside = path.parent().unwrap_or(Path::new("."));
            let places: Vec<PathBuf> = data.into_iter().chain([beside]).map(|dir| dir.join(name)).collect();
            let Some(found) = places.iter().find(|p| p.is_file()) else {
                self.missing.push(format!("{set}: no file {}", places[0].display()));
                return Ok(());
            };
            let table = Table::read(found).map_err(|source| Error::Data { path: path.into(), source })?;
            rows(&file, &table, &mut curves).map_err(wrong)?;
        }
        for ((group, name), mut points) in curves {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points.dedup_by(|a, b| a.0 == b.0);
            // Beyond, N no longer says how many CPUs were at work.
            points.retain(|p| file.most.is_none_or(|most| p.0 <= most));
            if let Some((n, x)) = points.iter().find(|p| !(p.0 >= 1.0 && p.1 > 0.0 && p.1.is_finite())) {
                return Err(wrong(format!(
                    "{group} {name}: N {n}, throughput {x}: N is 1 or more, throughput above 0"
                )));
            }
            self.curves.push(Curve {
                set: set.clone(),
                family: file.family.clone(),
                kind: file.kind.clone().unwrap_or_else(|| file.family.clone()),
                group,
                name,
                points: placed(&hardware, &file, &points),
            });
        }
        for w in &file.what_if {
            let fix: Change = w.fix.parse().map_err(&wrong)?;
            let mut found = false;
            for before in from..self.curves.len() {
                let after = (from..self.curves.len()).find(|&a| {
                    self.curves[a].name == w.after && self.curves[a].group == self.curves[before].group
                });
                if let Some(after) = after.filter(|_| self.curves[before].name == w.before) {
                    found = true;
                    self.what_ifs.push(WhatIf { before, after, fix, alone: w.alone });
                }
            }
            if !found {
                return Err(wrong(format!(
                    "there are no curves `{}` and `{}` of one group",
                    w.before, w.after
                )));
            }
        }
        Ok(())
    }
}

fn placed(hardware: &Hardware, file: &File, points: &[(f64, f64)]) -> Vec<Point> {
    let order = match file.order {
        OrderName::Spread => Order::Spread,
        OrderName::Pack => Order::Pack,
        OrderName::Fill => Order::Fill,
    };
    points.iter().map(|&(n, x)| (At::of(hardware, order, n, file.busy.unwrap_or(1.0)), x)).collect()
}

fn rows(
    file: &File,
    table: &Table,
    curves: &mut BTreeMap<(String, String), Vec<(f64, f64)>>,
) -> Result<(), String> {
    let numbers = || table.columns().iter().filter(|c| c.ty != Type::Text && !file.groups.contains(&c.name));
    let n = match &file.n {
        Some(n) => n.clone(),
        None if table.index("n").is_ok() => "n".into(),
        None => numbers().next().map(|c| c.name.clone()).ok_or("no column of numbers")?,
    };
    let mut needed: Vec<&str> = vec![&n];
    needed.extend(file.groups.iter().map(String::as_str));
    needed.extend(file.series.as_deref().into_iter().chain(file.value.as_deref()));
    if file.series.is_none() {
        needed.extend(file.curves.iter().map(String::as_str));
    }
    for column in needed {
        table.index(column).map_err(|e| e.to_string())?;
    }
    let cell = |row: usize, column: &str| match table.text(row, column) {
        Some(text) => text.to_string(),
        None => table.number(row, column).map(|x| x.to_string()).unwrap_or_default(),
    };
    let columns: Vec<String> = match (&file.series, file.curves.is_empty()) {
        (Some(_), _) => Vec::new(),
        (None, false) => file.curves.clone(),
        (None, true) => numbers().map(|c| c.name.clone()).filter(|c| *c != n).collect(),
    };
    for row in 0..table.num_rows() {
        let group = file.groups.iter().map(|g| cell(row, g)).collect::<Vec<_>>().join(" ");
        let Some(at) = table.number(row, &n) else { continue };
        if let Some(series) = &file.series {
            let name = cell(row, series);
            if !file.curves.is_empty() && !file.curves.contains(&name) {
                continue;
            }
            let value =
                file.value.as_deref().ok_or("`series` takes `value`, the column of the throughput")?;
            if let Some(x) = table.number(row, value) {
                curves.entry((group, name)).or_default().push((at, x));
            }
            continue;
        }
        for column in &columns {
            if let Some(x) = table.number(row, column) {
                curves.entry((group.clone(), column.clone())).or_default().push((at, x));
            }
        }
    }
    Ok(())
}
