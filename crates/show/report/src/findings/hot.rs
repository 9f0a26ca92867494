//! The code that most of the program's own work is in, and what its threads wait in where they hardly work.

use std::collections::BTreeMap;

use ncpu_schema::{Layer, SampleClass};

use super::asleep::{active, keeps_house};
use super::inlined::Inlined;
use super::libraries::runs_scripts;
use super::names::short;
use super::places::{Most, Place, begins, is_library, is_line, is_own_line};
use super::runtime::compiles;
use super::scripts;
use super::system_calls::call_in;
use super::view::{Sampled, Slept, View};
use crate::onion::evidence::collectors::collector;

/// The part of user code that a chain of calls has to be named.
const MOST: f64 = 0.6;

/// Functions of the chain that are named.
const SHOWN: usize = 3;

/// The part of user code from which a function that the chain's last one calls is named, and how many are.
const CALLED: f64 = 0.12;
const CALLEES: usize = 3;

/// The part of an observation below which a program's threads hardly run, and the part of their waits that says what for.
const RUNS: f64 = 0.3;
const WAITS: f64 = 0.4;

/// Whether a function is a runtime's, by which it calls what the program is, or begins it.
pub(super) fn passes(f: &str) -> bool {
    /// Frames of runtimes by which they call what the program is.
    const PASSES: [&str; 22] = [
        "JavaMain",
        "ThreadJavaMain",
        "jni_",
        "JavaCalls::",
        "JavaThread::",
        "Thread::call_run",
        "thread_entry",
        "os::java_start",
        "java.lang.Thread.run",
        "node::",
        "v8::",
        "uv_run",
        "uv__run",
        "Builtins_JSEntry",
        "Builtins_InterpreterEntryTrampoline",
        "runtime.systemstack",
        "runtime.mcall",
        "std::__invoke",
        "std::_Function_handler",
        "execute_native_thread_function",
        "void std::__invoke",
        "_PyEval",
    ];
    begins(f) || f.starts_with('[') || f == "main" || PASSES.iter().any(|start| f.starts_with(start))
}

/// The functions of a stack that say where it is, outermost first: of a script its lines, the function that the innermost one calls,
/// and the innermost function.
fn frames<'a>(user: &[&'a str]) -> Vec<&'a str> {
    let script = user.iter().any(|f| is_line(f) && !begins(f));
    let called = scripts::called(user);
    let mut out: Vec<&str> = Vec::new();
    for (at, &frame) in user.iter().enumerate().rev() {
        // Of Node's own functions, that which a line calls: they call each other in many ways.
        let of_node = scripts::is_of_node(frame) && out.last().is_some_and(|outer| is_line(outer));
        let kept = of_node || !passes(frame) && (!script || is_line(frame) || at == 0 || called == Some(at));
        // A recursion says no more than one call.
        if kept && out.last() != Some(&frame) {
            out.push(frame);
        }
    }
    out
}

/// The longest chain of calls, from the outside, that most of user code is in, by its innermost functions, and its part.
pub(super) fn hot(view: &View<'_>) -> Option<(String, f64)> {
    // A runtime's own threads do not run the program's code.
    let own = |s: &&Sampled<'_>| {
        s.class == SampleClass::User && !compiles(s) && collector(s.thread, &s.user).is_none()
    };
    let mut left: Vec<(Vec<&str>, f64)> = view
        .samples
        .iter()
        .filter(own)
        .map(|s| (frames(&s.user), s.seconds))
        .filter(|(frames, _)| !frames.is_empty())
        .collect();
    let all: f64 = view.samples.iter().filter(own).map(|s| s.seconds).sum();
    let user: f64 = view.samples.iter().filter(|s| s.class == SampleClass::User).map(|s| s.seconds).sum();
    let next = |left: &[(Vec<&'_ str>, f64)], at: usize| {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (frames, seconds) in left {
            if let Some(frame) = frames.get(at) {
                *sums.entry((*frame).to_string()).or_default() += seconds;
            }
        }
        let mut sums: Vec<(String, f64)> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    };
    let mut chain: Vec<String> = Vec::new();
    let mut share = 0.0;
    // A deep chain says no more.
    while chain.len() < 200 {
        let Some((frame, seconds)) = next(&left, chain.len()).into_iter().next() else { break };
        if seconds < MOST * all {
            break;
        }
        left.retain(|(frames, _)| frames.get(chain.len()).is_some_and(|f| *f == frame));
        chain.push(frame);
        share = seconds / user;
    }
    let mut calls = next(&left, chain.len());
    calls.extend(chain.last().into_iter().flat_map(|last| put_into(view, last)));
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    let called: Vec<String> = calls
        .into_iter()
        .filter(|(_, seconds)| *seconds >= CALLED * all)
        .take(CALLEES)
        .map(|(f, seconds)| {
            let name = if is_own_line(&f, None) { short(&f) } else { scripts::spoken(&f) };
            format!("{name} {:.0} %", 100.0 * seconds / all)
        })
        .collect();
    // A function that a script calls has no parts of the author's.
    let last = chain.last().filter(|_| scripts::shown(&chain).is_none()).cloned();
    let inner = last.as_deref().and_then(|last| own_inside(view, last));
    chain.extend(inner);
    let Some(mut words) = shown(&chain) else { return unnamed(view, all) };
    let line = last.as_deref().and_then(|last| line_of(view, last));
    let more: Vec<String> = line.into_iter().chain(called).collect();
    if !more.is_empty() {
        words += &format!(" ({})", more.join(", "));
    }
    Some((words, share))
}

/// The program's own function that a compiler put into one of its own, where most of that one's instructions are of it.
fn own_inside(view: &View<'_>, function: &str) -> Option<String> {
    let own =
        |frame| (!is_library(frame) && !frame.ends_with("{{closure}}") && frame != function).then_some(frame);
    let inlined = Inlined::new(view, own);
    let parts = inlined.parts.get(function)?;
    parts.iter().find(|(_, part)| *part >= MOST).map(|(frame, _)| (*frame).to_string())
}

/// The line of source that most of a function's own instructions are of: `app.c:12`.
pub(super) fn line_of(view: &View<'_>, function: &str) -> Option<String> {
    let (mut lines, mut all) = (Most::default(), 0.0);
    for at in view.instructions() {
        let inlined = at.inlined.unwrap_or(at.function);
        if at.function != function && inlined != function {
            continue;
        }
        all += at.samples;
        // Of code of a library the line is the library's.
        if let Some(source) = at.source.filter(|_| !is_library(inlined)) {
            lines.add(source.rsplit('/').next().unwrap_or(source), at.samples);
        }
    }
    let (line, samples) = lines.largest()?;
    (samples >= MOST * all && samples > 0.0).then(|| line.to_string())
}

/// Functions of libraries that a compiler put into one of the program's own, with their seconds: the outermost of each, which is what
/// the program calls.
fn put_into(view: &View<'_>, function: &str) -> Vec<(String, f64)> {
    if is_library(function) {
        return Vec::new();
    }
    let own =
        view.samples.iter().filter(|s| s.class == SampleClass::User && s.user.first() == Some(&function));
    let seconds: f64 = own.map(|s| s.seconds).sum();
    let inlined = Inlined::new(view, |frame| is_library(frame).then_some(frame));
    let parts = inlined.parts.get(function).into_iter().flatten();
    parts.map(|(frame, part)| ((*frame).to_string(), part * seconds)).collect()
}

/// Of JavaScript that has no names here, how it would have them, and its part.
fn unnamed(view: &View<'_>, all: f64) -> Option<(String, f64)> {
    let is = |s: &&Sampled<'_>| {
        s.class == SampleClass::User
            && s.user.first().is_some_and(|f| *f == "[anon]" || f.starts_with("Builtins_"))
            && s.user.iter().any(|f| f.starts_with("node::"))
    };
    let seconds: f64 = view.samples.iter().filter(is).map(|s| s.seconds).sum();
    let words = "JavaScript, whose functions have names with node --perf-basic-prof";
    (seconds >= 0.5 * all && seconds > 0.0).then(|| (words.to_string(), seconds / all))
}

/// The innermost functions of a chain. Where these are a library's, the program's own that calls it, what it calls there, and the
/// innermost.
fn shown(chain: &[String]) -> Option<String> {
    if let Some(words) = scripts::shown(chain) {
        return Some(words);
    }
    // The functions by which an interpreter runs any script say nothing.
    let said: Vec<String> = chain.iter().filter(|f| !runs_scripts(f)).cloned().collect();
    let chain = match said.is_empty() {
        true if !chain.is_empty() => return Some("the interpreter".into()),
        _ => &said[..],
    };
    let own = chain.iter().rposition(|f| !is_library(f));
    let names = |of: &[String]| of.iter().map(|f| short(f)).collect::<Vec<_>>().join(" → ");
    let last = chain.len().checked_sub(1)?;
    match own {
        Some(own) if last >= own + SHOWN => {
            let inner = if last > own + 2 { "… → " } else { "" };
            Some(format!("{} → {inner}{}", names(&chain[own..own + 2]), names(&chain[last..])))
        }
        _ => Some(names(&chain[chain.len().saturating_sub(SHOWN)..])),
    }
}

/// The system call and place that most of the time in system calls is in, and its part.
pub(super) fn called(view: &View<'_>) -> Option<(String, f64)> {
    let mut sums: BTreeMap<(&str, String), f64> = BTreeMap::new();
    let mut all = 0.0;
    for sample in view.samples.iter().filter(|s| s.layer() == Layer::Calls) {
        all += sample.seconds;
        if let Some(call) = call_in(&sample.kernel) {
            *sums.entry((call, Place::of(sample, call).function().to_string())).or_default() +=
                sample.seconds;
        }
    }
    let ((call, place), seconds) = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if seconds < MOST * all {
        return None;
    }
    let words = if place.is_empty() { call.to_string() } else { format!("{call} in {}", short(&place)) };
    Some((words, seconds / all))
}

/// The part of the observation that a sleep lasts on average of a thread that has nothing to do.
const IDLE: f64 = 0.1;

/// The call and place that threads of a program that hardly runs wait in most, and its part of their waits.
pub(super) fn waits(view: &View<'_>) -> Option<(String, f64)> {
    let runs = active(view)?;
    if runs >= RUNS * view.elapsed() {
        return None;
    }
    let waits: Vec<&Slept<'_>> =
        view.slept.iter().filter(|s| s.wait != "run queue" && !keeps_house(s)).collect();
    let all_of = |rows: &[&Slept<'_>]| rows.iter().map(|s| s.seconds).sum::<f64>();
    // Threads of pools that had nothing to do outweigh those that work: what is waited for comes back.
    let ended: Vec<&Slept<'_>> = waits.iter().copied().filter(|s| s.each() < IDLE * view.elapsed()).collect();
    let waits = if all_of(&ended) >= WAITS * view.elapsed() { ended } else { waits };
    let children = ["wait4", "waitid"];
    let mut sums: BTreeMap<(&str, String), f64> = BTreeMap::new();
    let mut all = 0.0;
    for s in waits {
        let call = call_in(&s.kernel).unwrap_or("");
        if children.contains(&call) {
            continue;
        }
        all += s.seconds;
        *sums.entry((call, Place::of_frames(&s.user, call).words())).or_default() += s.seconds;
    }
    let ((call, place), seconds) = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if all < WAITS * view.elapsed() || seconds < WAITS * all {
        return None;
    }
    let words = match (call, &*place) {
        ("", "") => return None,
        ("", place) => format!("in {place}"),
        (call, "") => format!("in {call}"),
        (call, place) => format!("in {call}, called in {place}"),
    };
    Some((words, seconds / all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_library_works_its_caller_is_named() {
        let chain = |names: &[&str]| shown(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let deep =
            ["main.main", "main.newError", "runtime.Callers", "runtime.callers", "runtime.tracebackPCs"];
        assert_eq!(chain(&deep).unwrap(), "main.newError → runtime.Callers → … → runtime.tracebackPCs");
        assert_eq!(chain(&["serve", "weigh", "__dynamic_cast"]).unwrap(), "serve → weigh → __dynamic_cast");
        assert_eq!(chain(&["a", "b", "c", "d"]).unwrap(), "b → c → d");
        assert_eq!(chain(&["std::a", "std::b", "std::c", "std::d"]).unwrap(), "std::b → std::c → std::d");
        assert_eq!(chain(&[]), None);
    }

    #[test]
    fn frames_of_runtimes_and_recursions_say_nothing() {
        let python = [
            "list_contains",
            "_PyEval_Vector",
            "total (a.py:3)",
            "total (a.py:3)",
            "<module> (a.py:1)",
            "main",
        ];
        assert_eq!(frames(&python), ["<module> (a.py:1)", "total (a.py:3)", "list_contains"]);
        let sort =
            ["unsafe_long_compare", "list_sort_impl", "list_sort", "add (a.py:3)", "<module> (a.py:1)"];
        assert_eq!(frames(&sort), ["<module> (a.py:1)", "add (a.py:3)", "list_sort", "unsafe_long_compare"]);
        let inspects = [
            "formatRaw (node:internal/util/inspect)",
            "formatValue (node:internal/util/inspect)",
            "step (a.js:7)",
            "<module> (a.js:1)",
            "load (node:internal/modules/cjs/loader)",
        ];
        assert_eq!(frames(&inspects), ["<module> (a.js:1)", "step (a.js:7)", inspects[1]]);
        let go = [
            "runtime.tracebackPCs",
            "runtime.systemstack.abi0",
            "runtime.Callers",
            "main.newError",
            "runtime.main",
        ];
        assert_eq!(frames(&go), ["main.newError", "runtime.Callers", "runtime.tracebackPCs"]);
    }
}
