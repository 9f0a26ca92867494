//! Where the cells of the grid go.

use std::ops::Range;

use crate::Place;

/// Contents of one cell: a CPU, or the CPUs of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub package: u32,
    pub core: u32,
    pub cpus: Vec<u32>,
}

/// The cells of these CPUs in the order of their places.
pub fn units(places: &[Place], fold: bool) -> Vec<Unit> {
    let mut places = places.to_vec();
    places.sort_unstable();
    let same = |a: &Place, b: &Place| fold && (a.package, a.core) == (b.package, b.core);
    places
        .chunk_by(same)
        .map(|run| Unit {
            package: run[0].package,
            core: run[0].core,
            cpus: run.iter().map(|p| p.cpu).collect(),
        })
        .collect()
}

/// A cell on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub unit: usize,
    pub line: usize,
    pub column: usize,
}

/// A package's name on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub text: String,
    pub line: usize,
    pub column: usize,
}

/// A grid laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    pub cells: Vec<Cell>,
    pub labels: Vec<Label>,
    pub lines: usize,
    pub cell_width: usize,
}

/// Widths a cell may have. From 4 on it shows its number.
const WIDTHS: [usize; 4] = [6, 4, 2, 1];

/// The grid with the widest cells that fits; if none does, the narrowest, which is then scrolled.
pub fn fit(units: &[Unit], width: usize, height: usize) -> Grid {
    let mut grids = WIDTHS.iter().map(|&w| lay_out(units, width, w));
    let mut last = Grid::default();
    for grid in &mut grids {
        let fits = grid.lines <= height;
        last = grid;
        if fits {
            break;
        }
    }
    last
}

fn label(package: u32) -> String {
    match package {
        u32::MAX => "P? ".into(),
        n => format!("P{n} "),
    }
}

/// Packages from left to right as far as they fit whole, cores kept together with a blank between.
fn lay_out(units: &[Unit], width: usize, cell_width: usize) -> Grid {
    let mut grid = Grid { cell_width, ..Grid::default() };
    let (mut line, mut column) = (0, 0);
    let mut at = 0;
    let label_width = units.iter().map(|u| label(u.package).len()).max().unwrap_or(0);
    for package in units.chunk_by(|a, b| a.package == b.package) {
        let cores: Vec<Range<usize>> = package
            .chunk_by(|a, b| a.core == b.core)
            .map(|core| {
                at += core.len();
                at - core.len()..at
            })
            .collect();
        // Cores of one cell need no blank between them, except now and then.
        let gap = usize::from(cores.iter().any(|c| c.len() > 1));
        let label = format!("{:<label_width$}", label(package[0].package));
        let whole: usize = label.len() + cores.iter().map(|c| c.len() * cell_width + gap).sum::<usize>();
        if column > 0 && column + whole > width {
            (line, column) = (line + 1, 0);
        }
        let indent = column + label.len();
        grid.labels.push(Label { text: label, line, column });
        column = indent;
        for core in cores {
            if column > indent && column + core.len() * cell_width > width {
                (line, column) = (line + 1, indent);
            }
            for unit in core {
                if column > indent && column + cell_width > width {
                    (line, column) = (line + 1, indent);
                }
                grid.cells.push(Cell { unit, line, column });
                column += cell_width;
            }
            column += gap;
        }
        // A package that took several lines leaves no room beside it.
        if grid.labels.last().is_some_and(|l| l.line != line) {
            (line, column) = (line + 1, 0);
        } else {
            column += 1;
        }
    }
    grid.lines = grid.cells.last().map_or(0, |c| c.line + 1);
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(packages: u32, cores: u32, threads: u32) -> Vec<Place> {
        // As Linux numbers them on x86: first strands first.
        let all = packages * cores;
        (0..all * threads).map(|cpu| Place { cpu, core: cpu % all, package: cpu % all / cores }).collect()
    }

    #[test]
    fn every_cpu_has_one_cell_inside_the_screen() {
        for (packages, cores, threads) in
            [(1, 2, 1), (2, 64, 2), (4, 8, 8), (32, 32, 2), (8, 128, 1), (1, 1, 1)]
        {
            for fold in [false, true] {
                let places = machine(packages, cores, threads);
                let units = units(&places, fold);
                assert_eq!(units.iter().map(|u| u.cpus.len()).sum::<usize>(), places.len());
                let grid = fit(&units, 80, 15);
                assert_eq!(grid.cells.len(), units.len());
                let mut at: Vec<_> = grid.cells.iter().map(|c| (c.line, c.column)).collect();
                assert!(at.iter().all(|&(_, column)| column + grid.cell_width <= 80));
                at.dedup();
                assert_eq!(at.len(), units.len());
                assert!(grid.cells.windows(2).all(|w| {
                    let end = w[0].column + grid.cell_width;
                    w[0].line < w[1].line || end <= w[1].column
                }));
            }
        }
    }

    #[test]
    fn what_fits_80_by_24() {
        let lines = |p, c, t, fold| fit(&units(&machine(p, c, t), fold), 80, 15).lines;
        assert!(lines(4, 32, 2, false) <= 15, "256 CPUs");
        assert!(lines(1, 256, 1, false) <= 15);
        assert!(lines(4, 8, 8, false) <= 15);
        assert!(lines(16, 64, 2, true) <= 16, "2048 CPUs folded to 1024 cores");
    }

    #[test]
    fn a_screen_too_small_breaks_nothing() {
        for width in 0..12 {
            let grid = fit(&units(&machine(2, 4, 8), false), width, 1);
            assert_eq!(grid.cells.len(), 64);
        }
        assert_eq!(fit(&[], 80, 10).lines, 0);
    }
}
