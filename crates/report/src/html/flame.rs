//! Flame graphs: inferno merges the stacks, lays them out and draws them; `page.js` zooms and
//! searches. Inferno's own script is left out: it is made for one graph in a file of its own, and
//! cannot follow the page's theme.

use std::collections::BTreeMap;
use std::fmt::Write;

use inferno::flamegraph::{self, Options, color::MultiPalette, color::Palette};
use ncpu_record::Recording;

use super::markup::{sane, seconds};

/// A graph's share of the page; frames get coarser until it fits.
const MOST_BYTES: usize = 400_000;
/// Narrowest frames drawn, in per cent of the graph.
const NARROW: [f64; 7] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
/// Frames deeper than this are cut off: a page of a runaway recursion must open.
const DEEPEST: usize = 200;
const FRAME: usize = 18;

const KINDS: [(&str, &str, &str); 4] = [
    ("on-cpu", "On CPU", "Where the program's threads executed, from timer samples."),
    ("spin", "Spin", "Who waited on CPU for kernel locks, from the timer samples that fell into a wait."),
    (
        "off-cpu",
        "Off CPU",
        "Where threads slept, in thread-seconds; the first frame says what for. Most sleep is harmless: \
         look at locks, I/O and the run queue first.",
    ),
    (
        WAITED,
        "Who everybody waited for",
        "What the threads did that idle CPUs waited for, in CPU-seconds of idle time; the first frame says what.",
    ),
];

/// Idle time by the stacks of table `critical_path`.
const WAITED: &str = "waited-for";

pub(super) fn section(out: &mut String, recording: &Recording) {
    out.push_str(
        "<section id=flames><h2>Flame graphs</h2><p class=lead>Width is time; callers are below, callees above. \
         <span class=key><span><i class=f-user></i>user frames</span><span><i class=f-kernel></i>kernel frames</span>\
         </span> Click or Enter zooms, Escape zooms out, arrow keys walk.</p>",
    );
    let mut stacks: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
    if let Some(t) = recording.tables.get("stacks") {
        for r in 0..t.num_rows() {
            let (Some(kind), Some(stack)) = (t.text(r, "kind"), t.text(r, "stack")) else { continue };
            *stacks.entry(kind).or_default().entry(frames(stack)).or_default() +=
                sane(t.number(r, "seconds"));
        }
    }
    if let Some(t) = recording.tables.get("critical_path") {
        for r in 0..t.num_rows() {
            let stack = format!("{};{}", t.text(r, "doing").unwrap_or("?"), t.text(r, "stack").unwrap_or(""));
            *stacks.entry(WAITED).or_default().entry(frames(stack.trim_end_matches(';'))).or_default() +=
                sane(t.number(r, "idle"));
        }
    }
    let told = |kind: &&(&str, &str, &str)| kind.0 != WAITED || stacks.contains_key(WAITED);
    for (kind, title, meaning) in KINDS.iter().filter(told).copied() {
        let _ = write!(out, "<div class=flame id=flame-{kind}><h3>{title}");
        let folded = stacks.get(kind);
        let total: f64 = folded.map_or(0.0, |s| s.values().sum());
        match folded.and_then(|folded| draw(folded, total)) {
            Some((svg, narrow)) => {
                let _ = write!(
                    out,
                    " <small>{} s</small></h3><p class=lead>{meaning} Frames below {narrow} % are not drawn.</p>\
                     <div class=tools><input type=search placeholder=\"Search functions\" aria-label=\"Search \
                     functions, {title}\"><button type=button class=out hidden>Zoom out</button><output \
                     aria-live=polite></output></div><div class=\"tools goto\"></div>{svg}<output class=read></output></div>",
                    seconds(total)
                );
            }
            None => {
                let _ = write!(out, "</h3><p class=none>{}</p></div>", absent(kind));
            }
        }
    }
    out.push_str("</section>");
}

fn absent(kind: &str) -> &'static str {
    match kind {
        "spin" => "No timer sample fell into a wait for a kernel lock.",
        "off-cpu" => "No thread of the program slept while its stack was watched.",
        _ => "No timer sample hit the program.",
    }
}

/// A stack in inferno's notation: every frame marked `_[k]` (kernel) or `_[i]` (which its palette
/// paints unlike the kernel's), so that no name can pass for a number or a comment.
pub(crate) fn frames(stack: &str) -> String {
    let mut out = String::with_capacity(stack.len() + 16);
    for frame in stack.split(';').take(DEEPEST) {
        let (name, mark) = match frame.strip_suffix("_[k]") {
            Some(name) => (name, "_[k]"),
            None => (frame, "_[i]"),
        };
        if !out.is_empty() {
            out.push(';');
        }
        let name = name.trim();
        if name.is_empty() {
            out.push('?');
        } else if name.starts_with('#') {
            out.push('_');
        }
        out.extend(name.chars().map(|c| if ncpu_table::safe::is_unsafe(c) { '\u{fffd}' } else { c }));
        out.push_str(mark);
    }
    out
}

/// The drawing, and the narrowest frame in it.
fn draw(folded: &BTreeMap<String, f64>, total: f64) -> Option<(String, f64)> {
    if total <= 0.0 {
        return None;
    }
    let scale = scale(total);
    let lines: Vec<String> = folded
        .iter()
        .map(|(stack, s)| (stack, (s * scale).round() as u64))
        .filter(|(_, n)| *n > 0)
        .map(|(stack, n)| format!("{stack} {n}"))
        .collect();
    drawn(lines, scale, false)
}

/// Stacks by their seconds now, coloured by how much that is more (red) or less (blue) than `before`; and the
/// narrowest frame drawn.
pub(crate) fn differential(
    now: &BTreeMap<String, f64>,
    before: &BTreeMap<String, f64>,
    negate: bool,
) -> Option<(String, f64)> {
    let sum = |side: &BTreeMap<String, f64>| side.values().sum::<f64>();
    let total = sum(now).max(sum(before));
    if sum(now) <= 0.0 {
        return None;
    }
    let scale = scale(total);
    let whole = |side: &BTreeMap<String, f64>, stack: &String| {
        (side.get(stack).copied().unwrap_or(0.0) * scale).round() as u64
    };
    let lines = now.keys().map(|stack| (stack, whole(before, stack), whole(now, stack)));
    drawn(
        lines.filter(|(.., n)| *n > 0).map(|(stack, b, n)| format!("{stack} {b} {n}")).collect(),
        scale,
        negate,
    )
}

/// Whole microseconds, or finer where there is less than a second; but never so many that a graph's sum overflows.
fn scale(total: f64) -> f64 {
    (1e15 / total).min(if total < 1.0 { 1e12 } else { 1e6 })
}

fn drawn(mut lines: Vec<String>, scale: f64, negate: bool) -> Option<(String, f64)> {
    lines.sort_unstable();
    for narrow in NARROW {
        let mut options = Options::default();
        options.colors = Palette::Multi(MultiPalette::Java);
        options.deterministic = true;
        options.negate_differentials = negate;
        options.min_width = narrow;
        options.frame_height = FRAME;
        options.count_name = "us".into();
        options.factor = 1e6 / scale;
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).ok()?;
        let graph = inner(&String::from_utf8(svg).ok()?)?;
        if graph.len() <= MOST_BYTES || narrow == NARROW[NARROW.len() - 1] {
            return Some((graph, narrow));
        }
    }
    None
}

/// The frames alone: inferno's title, buttons and script are the page's business.
fn inner(svg: &str) -> Option<String> {
    let from = svg.find("<svg id=\"frames\"")?;
    let body = &svg[from..];
    let body = &body[body.find('>')? + 1..];
    let body = &body[..body.find("</svg>")?];
    let ys = body.split(" y=\"").skip(1).filter_map(|s| s.split('"').next()?.parse::<f64>().ok());
    let (top, bottom) = ys.fold((f64::MAX, 0.0_f64), |(a, b), y| (a.min(y), b.max(y)));
    let (top, bottom) = ((top - 2.0).max(0.0), bottom + FRAME as f64);
    let mut out = String::with_capacity(body.len());
    let _ = write!(
        out,
        "<svg class=frames tabindex=0 role=application aria-label=\"flame graph\" height={:.0} \
         data-frame={FRAME}><svg y=\"-{top:.0}\" overflow=visible>",
        bottom - top
    );
    // Frames too narrow for a word have an empty text: the script makes it when it is zoomed to.
    let mut rest = body;
    while let Some(at) = rest.find("<text ") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find("</text>")? + at;
        if !rest[at..end].ends_with('>') {
            out.push_str(&rest[at..end + 7]);
        }
        rest = &rest[end + 7..];
    }
    out.push_str(rest);
    out.push_str("</svg></svg>");
    Some(out)
}
