//! Flame graphs: the page holds stacks as text, which `flame.js` draws.

use std::collections::BTreeMap;
use std::fmt::Write;

use ncpu_record::Recording;

use super::markup::{esc, sane, seconds};

/// Bytes of the texts of a graph; frames get coarser until they fit.
const MOST_BYTES: usize = 400_000;
/// Narrowest frames told, in per cent of the graph.
const NARROW: [f64; 7] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
/// Frames deeper than this are cut off: a page of a runaway recursion must open.
const DEEPEST: usize = 200;

const KINDS: [(&str, &str, &str); 4] = [
    ("on-cpu", "On CPU", "Where the program's threads executed, from timer samples."),
    (
        "spin",
        "Spin",
        "Threads that waited on CPU for kernel locks, from the timer samples that fell into a wait.",
    ),
    (
        "off-cpu",
        "Off CPU",
        "Where threads slept, in thread-seconds; the first frame is the reason. Most sleep is harmless: \
         look at locks, I/O and the run queue first.",
    ),
    (
        WAITED,
        "Threads that the others waited for",
        "Activity of the threads that idle CPUs waited for, in CPU-seconds of idle time; the first frame is its kind.",
    ),
];

/// Idle time by the stacks of table `critical_path`.
const WAITED: &str = "waited-for";

/// Seconds of each stack of one side of a comparison, or of the only one.
pub(crate) type Stacks = BTreeMap<String, f64>;

pub(super) fn section(out: &mut String, recording: &Recording) {
    out.push_str(
        "<section id=flames><h2>Flame graphs</h2><p class=lead>Width is time; callers are above, callees below. \
         <span class=key><span><i class=f-user></i>user frames</span><span><i class=f-kernel></i>kernel frames</span>\
         </span> Click or Enter zooms, Escape zooms out, arrow keys walk.</p>\
         <noscript><p class=none>The graphs need JavaScript; their stacks are there as text.</p></noscript>",
    );
    let mut stacks: BTreeMap<&str, Stacks> = BTreeMap::new();
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
        match stacks.get(kind).and_then(|folded| texts([folded])) {
            Some(([text], narrow)) => {
                let id = format!("stacks-{kind}");
                let total = stacks[kind].values().sum();
                let title = format!("{title} <small>{} s</small>", seconds(total));
                let lead = format!("{meaning} Frames below {narrow} % are not drawn.");
                graph(out, kind, &title, &lead, &format!("data-now={id}"), &text_of(&id, "", &text));
            }
            None => {
                let _ = write!(
                    out,
                    "<div class=flame id=flame-{kind}><h3>{title}</h3><p class=none>{}</p></div>",
                    absent(kind)
                );
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

/// The markup that `flame.js` draws into. `data` names the texts to draw; `title`, `lead` and `below` are markup.
pub(crate) fn graph(out: &mut String, id: &str, title: &str, lead: &str, data: &str, below: &str) {
    let name = title.split('<').next().unwrap_or(title).trim();
    let _ = write!(
        out,
        "<div class=flame id=flame-{id} {data}><h3>{title}</h3><p class=lead>{lead}</p><div class=tools>\
         <input type=search class=find placeholder=\"Search functions\" aria-label=\"Search functions\">\
         <button type=button class=back hidden>Zoom out</button><output class=matched aria-live=polite></output></div>\
         <div class=\"tools first\"></div><canvas tabindex=0 role=application aria-label=\"Flame graph: {name}\"></canvas>\
         <output class=read aria-live=polite></output>{below}</div>"
    );
}

/// Stacks as text, which `flame.js` draws; `of` names the side of a comparison.
pub(crate) fn text_of(id: &str, of: &str, text: &str) -> String {
    format!(
        "<details class=text><summary>Stacks{of} as text, in microseconds</summary><pre id={id} tabindex=0>{}</pre></details>",
        text.lines().map(|line| esc(line) + "\n").collect::<String>()
    )
}

/// A stack without control characters and empty frames, cut at [`DEEPEST`] frames.
pub(crate) fn frames(stack: &str) -> String {
    let clean = |c: char| if ncpu_table::safe::is_unsafe(c) { '\u{fffd}' } else { c };
    let frame = |frame: &str| match frame.trim() {
        "" => "?".into(),
        frame => frame.chars().map(clean).collect::<String>(),
    };
    stack.split(';').take(DEEPEST).map(frame).collect::<Vec<_>>().join(";")
}

/// A frame: its seconds on each side, callees included.
struct Node<'a, const N: usize> {
    seconds: [f64; N],
    callees: BTreeMap<&'a str, Node<'a, N>>,
}

impl<'a, const N: usize> Node<'a, N> {
    fn new() -> Node<'a, N> {
        Node { seconds: [0.0; N], callees: BTreeMap::new() }
    }

    /// Writes a line for the frame and each callee of `least` seconds or more on any side. Time of smaller callees counts as
    /// the frame's own.
    fn write(&self, path: &mut String, least: f64, texts: &mut [String; N]) {
        let mut own = self.seconds;
        for (name, callee) in &self.callees {
            if callee.seconds.iter().all(|s| *s < least) {
                continue;
            }
            own.iter_mut().zip(callee.seconds).for_each(|(own, s)| *own -= s);
            let length = path.len();
            path.push_str(if length == 0 { "" } else { ";" });
            path.push_str(name);
            callee.write(path, least, texts);
            path.truncate(length);
        }
        for (text, s) in texts.iter_mut().zip(own) {
            // Smaller values are rounding errors of the subtraction.
            if s > least * 1e-6 && !path.is_empty() {
                let _ = writeln!(text, "{path} {}", ncpu_table::figure(s * 1e6));
            }
        }
    }
}

/// The stacks of each side as lines of `outermost;...;leaf MICROSECONDS`, and the narrowest frame in them.
pub(crate) fn texts<const N: usize>(sides: [&Stacks; N]) -> Option<([String; N], f64)> {
    let mut root = Node::<N>::new();
    for (side, stacks) in sides.into_iter().enumerate() {
        for (stack, s) in stacks {
            let mut node = &mut root;
            node.seconds[side] += s;
            for frame in stack.split(';') {
                node = node.callees.entry(frame).or_insert_with(Node::new);
                node.seconds[side] += s;
            }
        }
    }
    let total = root.seconds.iter().copied().fold(0.0, f64::max);
    if !(total > 0.0 && (total * 1e6).is_finite()) {
        return None;
    }
    NARROW.iter().find_map(|narrow| {
        let mut texts = [const { String::new() }; N];
        root.write(&mut String::new(), total * narrow / 100.0, &mut texts);
        let fits =
            texts.iter().map(String::len).sum::<usize>() <= MOST_BYTES || *narrow == NARROW[NARROW.len() - 1];
        fits.then_some((texts, *narrow))
    })
}
