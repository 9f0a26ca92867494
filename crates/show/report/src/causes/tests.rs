use super::*;

#[test]
fn own_entries_are_read_to_the_end() {
    for text in OWN {
        let entries = text.lines().filter(|line| *line == "[[cause]]").count();
        assert_eq!(read(text).map(|list| list.len()), Ok(entries));
    }
    let list = Causes::default().list;
    for (at, cause) in list.iter().enumerate() {
        assert!(list[..at].iter().all(|other| other.id != cause.id), "{} twice", cause.id);
        assert!(!cause.sources.is_empty(), "{}", cause.id);
    }
}

#[test]
fn all_evidence_that_is_asked_for_has_an_entry() {
    let causes = Causes::default();
    for &when in When::ALL {
        assert!(causes.list().iter().any(|cause| cause.when == when), "{}", when.word());
    }
}

#[test]
fn the_manual_lists_all_evidence() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/causes.md");
    let text = std::fs::read_to_string(&page).expect("docs/causes.md");
    let (before, _) = text.split_once("## Evidence\n").expect("a section of evidence");
    let mut wanted = format!(
        "{before}## Evidence\n\n| `when` | needs | `names` are compared with | fields |\n| --- | --- | --- | --- |\n"
    );
    for when in When::ALL {
        let fields: Vec<String> = when.fields().iter().map(|field| format!("`{{{field}}}`")).collect();
        let subject = when.subject().unwrap_or("");
        wanted.push_str(&format!(
            "| `{}` | {} | {subject} | {} |\n",
            when.word(),
            when.meaning(),
            fields.join(", ")
        ));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&page, &wanted).expect("docs/causes.md is written");
    }
    let there = std::fs::read_to_string(&page).expect("docs/causes.md");
    assert!(there == wanted, "docs/causes.md is out of date: run this test with BLESS=1");
}

#[test]
fn kernel_locks_are_known_by_whole_words() {
    let causes = Causes::default();
    let known = |lock: &str| causes.named(Layer::KernelSpin, When::KernelLock, lock).map(|cause| &*cause.id);
    for (lock, id) in [
        ("files_struct.file_lock", "descriptor-table"),
        ("lock in close_fd", "descriptor-table"),
        ("rq(CPU 3)", "run-queue-lock"),
        ("zone.lock(node 0)", "page-allocator"),
        ("sock.sk_lock.slock", "shared-socket"),
        ("eventpoll.lock", "shared-epoll"),
        ("lock in ep_poll_callback", "shared-epoll"),
        ("lock in jbd2_journal_commit_transaction", "journal"),
        ("futex_queues+0x40", "futex-bucket"),
    ] {
        assert_eq!(known(lock), Some(id), "{lock}");
    }
    for lock in [
        "irq_desc.lock",
        "timezone_lock",
        "rpcpipe.lock",
        "sleep_state",
        "lock in step_into",
        "lock in request_threaded_irq",
        "vmap_area_lock",
        "0xffff888000004840",
        "blocked_lock_hash",
        "sockaddr_table",
    ] {
        assert_eq!(known(lock), None, "{lock}");
    }
}

/// An entry with these lines among its own.
fn entry(more: &str) -> String {
    format!("[[cause]]\nid = \"ours\"\nlayers = [\"system calls\"]\nwhy = \"x\"\nsources = [\"x\"]\n{more}")
}

#[test]
fn a_bad_entry_is_shown_by_line_and_column() {
    let bad = |more: &str| {
        let (at, bad) = Causes::with([&*entry(more)]).expect_err(more);
        assert_eq!(at, 0);
        (bad.line, bad.what)
    };
    let when = "when = \"call\"\n";
    assert!(
        bad("when = \"cal\"\nadvice = \"x\"")
            .1
            .contains("unknown evidence `cal`; expected one of: kernel-lock")
    );
    assert_eq!(bad("when = \"cal\"\nadvice = \"x\"").0, 6);
    assert!(
        bad(&format!("{when}advice = \"{{lock}}\""))
            .1
            .contains("unknown field {lock}; expected one of: {call}")
    );
    assert!(bad(&format!("{when}advice = \"{{command}}\"")).1.contains("unknown field {command}"));
    assert!(bad(&format!("{when}advise = \"x\"")).1.contains("advise"));
    assert!(bad(&format!("{when}advice = \"\"")).1.contains("expected 1 to 600"));
    assert!(bad(&format!("{when}advice = \"a\\u001bb\"")).1.contains("control character"));
    assert!(bad(&format!("{when}advice = \"x\"\nnames = [\"*\"]")).1.contains("too short"));
    assert!(bad("when = \"calls\"\nadvice = \"x\"\nnames = [\"read\"]").1.contains("no name to compare"));
    assert!(
        bad(&format!("{when}advice = \"x\"\n{}", entry(&format!("{when}advice = \"y\""))))
            .1
            .contains("earlier")
    );
    let layer = "[[cause]]\nid = \"a-b\"\nlayers = [\"calls\"]\n";
    assert!(
        read(layer).expect_err("no layer").what.contains("unknown layer `calls`; expected one of: user lock")
    );
    assert!(read("[[cause]]\nid = \"A\"").is_err() && read("cause = 1").is_err() && read("x = [").is_err());
    assert!(read(&entry("when = \"call\"\nadvice = \"x\"").replace("ours", "Our s")).is_err());
}

#[test]
fn a_user_s_entry_goes_first_and_replaces_one_of_its_id() {
    let text = entry(
        "when = \"call\"\nnames = [\"write\"]\nadvice = \"ours for {call}: {command}\"\ncommand = \"see {call}\"",
    );
    let causes = Causes::with([&*text]).expect("good");
    let advice = |call: &str| {
        let cause = causes.of(Layer::Calls, When::Call, call).expect("an entry");
        cause.advice(&[("call", call)])
    };
    assert_eq!(advice("write").words, "ours for write: `see write`");
    assert_eq!((advice("write").id, advice("write").command), ("ours".into(), Some("see write".into())));
    assert_eq!((advice("read").id, advice("getpid").id), ("small-transfers".into(), "one-call".into()));
    let replaced =
        Causes::with([&*text.replace("\"ours\"", "\"one-call\"").replace("names = [\"write\"]\n", "")]);
    let replaced = replaced.expect("good");
    assert_eq!(replaced.list().len(), Causes::default().list().len());
    let cause = replaced.of(Layer::Calls, When::Call, "getpid").expect("an entry");
    assert!(cause.advice.starts_with("ours") && replaced.is_users(cause));
}

#[test]
fn names_of_others_stay_what_they_are() {
    assert_eq!(fill("a {x} b {y}", &[("x", "{y}"), ("y", "1")]), "a {y} b 1");
    assert_eq!(fill("a { b", &[]), "a { b");
}

mod any {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_is_read_or_refused_in_its_lines(text in "(\\[\\[cause\\]\\]\n|id = \"|layers = |[ -~\n\"{}]){0,40}") {
            if let Err(bad) = read(&text) {
                prop_assert!(bad.line >= 1 && bad.line <= text.lines().count().max(1) + 1, "{bad}");
            }
        }
    }
}
