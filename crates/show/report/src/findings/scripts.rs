//! Functions that a line of a script calls: C functions of its interpreter, builtins of V8 and functions of the language's library.

use super::names::short;
use super::places::{begins, is_line, is_own_line};

/// Whether a function is one of Node's own, in JavaScript: no line of it is known.
pub(super) fn is_of_node(frame: &str) -> bool {
    frame.contains(" (node:")
}

/// Whether a function of an interpreter only hands a call on, to what the script calls.
fn hands_on(frame: &str) -> bool {
    const STARTS: [&str; 40] = [
        "_PyEval_",
        "PyEval_",
        "PyObject_Call",
        "PyObject_Vectorcall",
        "_PyObject_Call",
        "_PyObject_MakeTpCall",
        "_PyObject_FastCall",
        "_PyObject_Vectorcall",
        "_PyFunction_Vectorcall",
        "PyVectorcall_",
        "_PyVectorcall_",
        "PyObject_GetItem",
        "PyObject_SetItem",
        "PyObject_GetIter",
        "PyObject_RichCompare",
        "PyObject_Str",
        "PyObject_Repr",
        "PyObject_Format",
        "PyObject_GetAttr",
        "PyNumber_",
        "PySequence_",
        "PyIter_",
        "object_vacall",
        "vectorcall_",
        "cfunction_",
        "method_vectorcall",
        "method_call",
        "slot_",
        "type_call",
        "do_richcompare",
        "binary_op",
        "binary_iop",
        "wrap_",
        "gen_",
        "Builtins_CEntry",
        "Builtins_HandleApiCall",
        "Builtins_Call",
        "v8::internal::Builtin_HandleApiCall",
        "v8::internal::Builtins::InvokeApiFunction",
        "v8::internal::FunctionCallbackArguments",
    ];
    frame.starts_with('[')
        || STARTS.iter().any(|start| frame.starts_with(start))
        || frame.starts_with("Builtins_")
            && ["Trampoline", "Handler", "IC", "ICBaseline"].iter().any(|of| frame.contains(of))
        || frame.contains("HandleApiCallHelper")
        || frame == "_Py_Dealloc"
}

/// The function that the innermost line of a stack calls, by its place in the stack, innermost first.
pub(super) fn called(user: &[&str]) -> Option<usize> {
    let line = user.iter().position(|f| is_line(f) && !begins(f) || is_of_node(f))?;
    // Node's own functions also begin programs: those are outside of all lines.
    user.iter().find(|f| is_line(f) && !begins(f))?;
    user[..line].iter().rposition(|frame| !hands_on(frame))
}

/// A function that a script calls, as its language says it: `list.sort` of `list_sort`, `gzip.compress` of `compress (gzip.py:576)`,
/// `Number.toLocaleString` of `v8::internal::Builtin_NumberPrototypeToLocaleString`.
pub(super) fn spoken(frame: &str) -> String {
    const TYPES: [(&str, &str); 22] = [
        ("list_", "list."),
        ("dict_", "dict."),
        ("set_", "set."),
        ("tuple_", "tuple."),
        ("deque_", "deque."),
        ("bytes_", "bytes."),
        ("bytearray_", "bytearray."),
        ("unicode_", "str."),
        ("long_", "int."),
        ("float_", "float."),
        ("builtin_", ""),
        ("os_", "os."),
        ("math_", "math."),
        ("time_", "time."),
        ("zlib_", "zlib."),
        ("binascii_", "binascii."),
        ("datetime_", "datetime."),
        ("pattern_", "re.Pattern."),
        ("_sre_SRE_Pattern_", "re.Pattern."),
        ("_pickle_", "pickle."),
        ("_heapq_", "heapq."),
        ("_bisect_", "bisect."),
    ];
    if is_line(frame) {
        let Some((name, at)) = frame.rsplit_once(" (") else { return frame.to_string() };
        let file = at.split(':').next().unwrap_or(at).trim_start_matches("<frozen ").trim_end_matches('>');
        let file = file.strip_suffix(".py").unwrap_or(file);
        // Of a package, the file says little.
        return if file == "__init__" { frame.to_string() } else { format!("{file}.{name}") };
    }
    if is_of_node(frame) {
        return frame.to_string();
    }
    let name = short(frame);
    let builtin = name.strip_prefix("v8::internal::Builtin_").or_else(|| name.strip_prefix("Builtins_"));
    if let Some(builtin) = builtin {
        let builtin = builtin.split("__").next().unwrap_or(builtin);
        return match builtin.split_once("Prototype") {
            Some((of, method)) if !of.is_empty() && !method.is_empty() => {
                let (first, rest) = method.split_at(method.chars().next().map_or(0, char::len_utf8));
                format!("{of}.{}{rest}", first.to_lowercase())
            }
            _ => builtin.replace("Json", "JSON."),
        };
    }
    let name = name.strip_suffix("_impl").unwrap_or(&name);
    if name == "deque_item" {
        return "deque[i]".into();
    }
    match TYPES.iter().find_map(|(start, of)| Some((of, name.strip_prefix(start)?))) {
        Some((of, method)) if !method.is_empty() => format!("{of}{method}"),
        _ => name.to_string(),
    }
}

/// The functions of a chain of calls, outermost first, as `X, called by LINE ← CALLER`, where the last of a script's own lines in it
/// calls a function that is in the chain as well.
pub(super) fn shown(chain: &[String]) -> Option<String> {
    let own = chain
        .iter()
        .enumerate()
        .rposition(|(at, f)| is_own_line(f, chain.get(at + 1).map(|inner| &**inner)))?;
    let inner = &chain[own + 1..];
    let first = inner.first()?;
    let mut words = spoken(first);
    // The innermost function of a library's call.
    if let Some(last) = inner.last().filter(|_| inner.len() > 1) {
        words += &format!(" → {}", spoken(last));
    }
    let callers: Vec<String> = chain[..=own].iter().rev().take(2).map(|f| short(f)).collect();
    Some(format!("{words}, called by {}", callers.join(" ← ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_line_calls_is_known_behind_what_hands_the_call_on() {
        let of = |user: &[&'static str]| called(user).map(|at| user[at]);
        let sort =
            ["long_richcompare", "PyObject_RichCompare", "list_sort_impl", "list_sort", "add (a.py:3)"];
        assert_eq!(of(&sort), Some("list_sort"));
        let item = ["deque_item", "PyObject_GetItem", "_PyEval_EvalFrameDefault", "mean (a.py:3)", "main"];
        assert_eq!(of(&item), Some("deque_item"));
        assert_eq!(of(&["_PyEval_EvalFrameDefault", "mean (a.py:3)"]), None, "the line's own work");
        let price = [
            "icu_78::DecimalFormatSymbols::initialize()",
            "v8::internal::JSNumberFormat::New(v8::internal::Isolate*)",
            "v8::internal::Builtin_NumberPrototypeToLocaleString(int, unsigned long*)",
            "Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit",
            "price (a.js:5)",
        ];
        assert_eq!(of(&price), Some(price[2]));
        let loads = ["v8::internal::Compiler::Compile()", "load (node:internal/modules/cjs/loader)"];
        assert_eq!(of(&loads), None, "no line of the program");
    }

    #[test]
    fn functions_are_named_as_their_languages_do() {
        for (frame, name) in [
            ("list_sort_impl", "list.sort"),
            ("unicode_replace", "str.replace"),
            ("builtin_sorted", "sorted"),
            ("deque_item", "deque[i]"),
            ("pbkdf2_hmac", "pbkdf2_hmac"),
            ("compress (gzip.py:576)", "gzip.compress"),
            ("realpath (<frozen posixpath>:412)", "posixpath.realpath"),
            ("dumps (__init__.py:238)", "dumps (__init__.py:238)"),
            ("Builtins_ArrayPrototypeJoin", "Array.join"),
            ("Builtins_JsonStringify", "JSON.Stringify"),
            ("v8::internal::Builtin_NumberPrototypeToLocaleString(int)", "Number.toLocaleString"),
            ("formatValue (node:internal/util/inspect)", "formatValue (node:internal/util/inspect)"),
        ] {
            assert_eq!(spoken(frame), name);
        }
    }

    #[test]
    fn the_line_that_calls_is_named_behind_what_it_calls() {
        let of = |chain: &[&str]| shown(&chain.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            of(&[
                "<module> (a.py:1)",
                "send (a.py:9)",
                "pack (a.py:6)",
                "compress (gzip.py:576)",
                "zlib_compress"
            ])
            .unwrap(),
            "gzip.compress → zlib.compress, called by pack (a.py:6) ← send (a.py:9)"
        );
        assert_eq!(of(&["<module> (a.py:1)", "pack (a.py:6)"]), None);
        assert_eq!(of(&["main", "list_sort"]), None, "no line of a script");
    }
}
