use super::*;
use ncpu_table::{Kind, Unit};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const COLUMNS: [&str; 17] = [
    "CPU", "minf", "mjf", "xcal", "intr", "ithr", "csw", "icsw", "migr", "smtx", "srw", "syscl", "usr",
    "sys", "wt", "st", "idl",
];

/// A machine numbered as x86 is, with a load that differs by package and core.
fn machine(packages: u32, cores: u32, threads: u32) -> (Vec<Place>, Table) {
    let all = packages * cores;
    let columns: Vec<Column> = COLUMNS
        .iter()
        .map(|&name| match name {
            "CPU" => Column::id(name, ""),
            "usr" | "sys" | "wt" | "st" | "idl" => Column::float(name, Unit::Percent, Kind::Share, ""),
            _ => Column::float(name, Unit::PerSecond, Kind::Count, ""),
        })
        .collect();
    let mut table = Table::builder("cpus", &columns);
    let mut places = Vec::new();
    for cpu in 0..all * threads {
        let core = cpu % all;
        places.push(Place { cpu, core, package: core / cores });
        let busy = f64::from((core * 37 + cpu / all * 11) % 101);
        let rate = f64::from(core * 13 % 997);
        let mut row = table.row().int(cpu.into());
        for _ in 0..11 {
            row = row.float(rate);
        }
        row.float(busy / 2.0).float(busy / 2.0).float(0.0).float(0.0).float(100.0 - busy);
    }
    (places, table.finish())
}

fn view(packages: u32, cores: u32, threads: u32, color: bool) -> View {
    let (places, table) = machine(packages, cores, threads);
    let mut view = View::new(places, color);
    view.update(table, Vec::new());
    view
}

fn screen(view: &mut View, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    terminal
}

fn show(view: &mut View) -> String {
    screen(view, 80, 24).backend().to_string()
}

#[test]
fn two_cpus() {
    insta::assert_snapshot!(show(&mut view(1, 2, 1, false)));
}

#[test]
fn the_256_cpus_of_a_t5440_fit_one_screen() {
    let mut v = view(4, 8, 8, false);
    insta::assert_snapshot!(show(&mut v));
    assert!(v.grid.lines <= v.height);
}

#[test]
fn two_packages_of_64_cores_with_two_threads() {
    let mut v = view(2, 64, 2, false);
    v.key(Key::NextMetric);
    v.key(Key::End);
    insta::assert_snapshot!(show(&mut v));
    assert!(v.grid.lines <= v.height);
}

#[test]
fn a_large_machine_scrolls() {
    let mut v = view(32, 32, 2, false);
    insta::assert_snapshot!("2048_cpus", show(&mut v));
    v.key(Key::End);
    let bottom = show(&mut v);
    assert!(bottom.contains("P31"), "{bottom}");
    v.key(Key::Fold);
    insta::assert_snapshot!("2048_cpus_folded", show(&mut v));
    v.key(Key::PageUp);
    v.key(Key::Up);
    assert!(show(&mut v).contains("◆"));
}

#[test]
fn moving_stays_on_the_grid_and_shows_the_row() {
    let mut v = view(2, 4, 2, false);
    show(&mut v);
    for key in [Key::Up, Key::Left, Key::PageUp, Key::Home] {
        v.key(key);
        assert_eq!(v.selected, 0);
    }
    v.key(Key::Right);
    assert!(show(&mut v).contains("\"  8 "), "the second strand of core 0 is CPU 8");
    v.key(Key::End);
    for key in [Key::Right, Key::PageDown] {
        v.key(key);
    }
    assert_eq!(v.units[v.selected].cpus, [15]);
    v.key(Key::Fold);
    assert_eq!(v.units[v.selected].cpus, [7, 15], "the selection stays with its CPU");
    assert!(show(&mut v).contains("core minf mjf"));
}

#[test]
fn colour_only_where_it_is_wanted() {
    let styled = |color| {
        let mut v = view(1, 2, 1, color);
        let terminal = screen(&mut v, 80, 24);
        terminal.backend().buffer().content().iter().any(|c| c.fg != Color::Reset || c.bg != Color::Reset)
    };
    assert!(styled(true));
    assert!(!styled(false));
}

#[test]
fn cpus_come_go_and_columns_are_missing() {
    let (places, _) = machine(1, 4, 1);
    let mut v = View::new(places, false);
    show(&mut v);
    let mut t = Table::builder(
        "cpus",
        &[Column::id("CPU", ""), Column::float("intr", Unit::PerSecond, Kind::Count, "")],
    );
    for cpu in [0, 2, 9] {
        t.row().int(cpu).float(5e5);
    }
    v.update(t.finish(), vec!["CPUs 1,3 went offline".into()]);
    let text = show(&mut v);
    assert!(text.contains("colour: intr") && text.contains("P?") && text.contains("went offline"), "{text}");
    v.key(Key::Right);
    assert!(show(&mut v).contains("CPU 1 is offline"));
}

#[test]
fn any_size_of_screen_is_drawn() {
    let mut v = view(4, 32, 2, true);
    for (width, height) in [(1, 1), (3, 2), (20, 3), (40, 10), (79, 15), (300, 100)] {
        screen(&mut v, width, height);
        v.key(Key::PageDown);
    }
}

#[test]
fn numbers_fit_a_cell() {
    for (value, text) in [
        (0.2, "0"),
        (42.4, "42"),
        (999.4, "999"),
        (1000.0, "1k"),
        (99_400.0, "99k"),
        (250_000.0, ".2M"),
        (3.2e6, "3M"),
    ] {
        assert_eq!(short(Some(value)), text);
    }
}
