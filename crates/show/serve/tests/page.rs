//! The page in Debian's Chromium: what it shows, and what keys, brush and tables do.

mod common;

use common::browser::Browser;
use common::{Server, get};

/// Pixels of a canvas that are painted.
const PAINTED: &str = "const c = document.querySelector(WHICH); \
    const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
    let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n";

#[test]
fn the_page_shows_what_was_observed() {
    let mut server = Server::start(|_| ());
    let page = get(&server.address, "/", &[]).text();
    if page.contains("left out of this build") {
        eprintln!("skipped: the page was left out of this build");
        return;
    }
    let Some(browser) = Browser::start() else {
        eprintln!("skipped: no chromedriver (Debian's package chromium-driver has it)");
        return;
    };
    (0..40).for_each(|number| server.send(number));
    server.wait(40);
    browser.go(&format!("{}/", server.address));
    browser.until("the onion", "return document.querySelectorAll('#layers .layer').length > 1");
    let text = |of: &str| {
        let text = browser.run(&format!("return document.querySelector({of:?}).innerText"));
        text.as_str().unwrap_or_default().to_owned()
    };
    let painted = |of: &str| browser.run(&PAINTED.replace("WHICH", &format!("{of:?}"))).as_u64().unwrap();
    assert!(text("#layers").contains("user code"), "{}", text("#layers"));
    assert!(text("#layers").contains("50.0 %"), "{}", text("#layers"));
    assert!(text("#where").contains("2 CPUs"), "{}", text("#where"));
    for (of, least) in [("#bands canvas", 1000), ("#grid", 100), ("#stacks canvas", 1000)] {
        // Each part comes with an answer of its own.
        browser.until(of, &format!("{} > {least}", PAINTED.replace("WHICH", &format!("{of:?}"))));
    }
    assert_eq!(text("#error"), "");
    browser.picture("page.png");

    // CPUs in the order of nodes, of which the second's comes first, and of their numbers; coloured by any column.
    let choose = |of: &str, value: &str| {
        let change =
            "const s = document.querySelector(OF); s.value = VALUE; s.dispatchEvent(new Event('change'))";
        browser.run(&change.replace("OF", &format!("{of:?}")).replace("VALUE", &format!("{value:?}")))
    };
    browser.run("document.querySelector('#grid').focus()");
    let first = |what: &str| {
        // Home.
        browser.keys("\u{e011}");
        let told = text("#cpu");
        assert!(told.starts_with(what), "{told}");
    };
    first("CPU 1 (node 0, package 0, core 1): idle 100 %");
    browser.keys("\u{e014}");
    assert!(text("#cpu").starts_with("CPU 0 (node 1"), "{}", text("#cpu"));
    choose("#order", "number");
    first("CPU 0 (node 1, package 0, core 0): programs 100 %");
    choose("#state", "cpus.intr");
    assert_eq!(text("#most"), "100 a second");
    browser.keys("\u{e010}");
    assert!(text("#cpu").contains("intr 100 a second, idle 100 %"), "{}", text("#cpu"));
    let hash = browser.run("return location.hash").as_str().unwrap().to_owned();
    assert!(hash.contains("colour=cpus.intr") && hash.contains("order=number"), "{hash}");
    browser.picture("cpus.png");
    browser.run("document.activeElement.blur(); scrollTo(0, 0)");
    browser.until("the top", "return scrollY === 0");

    // A time that is brushed is in the link, and its onion is compared with the one before.
    browser.drag("#bands .u-over", 0.5, 0.7);
    browser.until(
        "the brushed time",
        "return location.hash.includes('from=') && !document.querySelector('#all').hidden",
    );
    browser
        .until("the comparison", "return /\\d/.test(document.querySelector('#layers .change').textContent)");
    let place = browser.run("return getComputedStyle(document.querySelector('#layers .change')).position");
    assert_eq!(place, "static", "in its column");
    let link = browser.run("return location.href").as_str().unwrap().to_owned();
    assert!(text("#brushed").contains('–'), "{}", text("#brushed"));

    // Stacks: of another kind, against the time before, and by keys.
    browser
        .run("document.querySelector('#compare').click(); document.querySelector('#stacks canvas').focus()");
    browser.until("the comparison of stacks", "return location.hash.includes('compare')");
    browser.keys("\u{e015}\u{e015}");
    browser.until("a frame", "return document.querySelector('#stacks .read').textContent.startsWith('main')");
    browser.keys("\u{e007}");
    browser.until("one frame alone", "return !document.querySelector('#stacks .back').hidden");
    browser
        .until("the change", "return document.querySelector('#stacks .read').textContent.includes('points')");
    browser.picture("stacks.png");
    browser.run(
        "const k = document.querySelector('#kind'); k.value = 'spin'; k.dispatchEvent(new Event('change'))",
    );
    browser.until(
        "no stacks",
        "return document.querySelector('#stacks .read').textContent.includes('No stacks')",
    );

    // What another machine's page has saved is compared with, and nothing else.
    let saved = browser.run(
        "document.querySelector('#kind').value = 'cpu'; const make = URL.createObjectURL; window.saved = null; \
         URL.createObjectURL = (blob) => { blob.text().then(t => window.saved = t); return make.call(URL, blob) }; \
         document.querySelector('#keep').click()",
    );
    assert!(saved.is_null());
    browser.until("what is saved", "return window.saved !== null");
    let give = |change: &str| {
        browser.run(&format!(
            "const f = document.querySelector('#file'), d = new DataTransfer(); {change}; \
             d.items.add(new File([text], 'other.json')); f.files = d.files; f.dispatchEvent(new Event('change'))"
        ))
    };
    give("let text = window.saved.slice(0, -9)");
    browser.until(
        "why it is refused",
        "return document.querySelector('#error').textContent.startsWith('other.json: not JSON')",
    );
    give("let text = '{\"ncpu\":\"kept\",\"host\":1}'");
    browser
        .until("what is missing", "return document.querySelector('#error').textContent.includes('missing')");
    give(
        "const all = JSON.parse(window.saved); all.host = '<b>other</b>'; \
         for (const row of all.layers.rows) row.share = 0.25; const locks = all.tables.locks.rows; locks[0].spin = 0.5; \
         locks.push({ ...locks[0], lock: 'gone', spin: 3 }); let text = JSON.stringify(all)",
    );
    browser.until(
        "the other machine",
        "return document.querySelector('#layers .change').title.includes('<b>other</b>, 2 CPUs')",
    );
    assert_eq!(text("#error"), "");
    assert!(text("#layers .change").contains('+'), "{}", text("#layers .change"));
    assert_eq!(text("#other"), "<b>other</b>");
    browser.picture("other.png");

    // A table sorts, filters and folds.
    browser.run(
        "const t = document.querySelector('#table'); t.value = 'locks'; t.dispatchEvent(new Event('change'))",
    );
    browser.until("locks", "return document.querySelector('#rows').innerText.includes('pcf')");
    browser.run("[...document.querySelectorAll('#rows .head button')].find(b => b.textContent.startsWith('spin')).click()");
    browser.until("the order", "return location.hash.includes('sort=spin')");

    // Its rows beside those of the other machine: in the order of the change, what is no more comes last.
    let rows = || text("#rows .space").split_whitespace().collect::<Vec<_>>().join(" ");
    let sort = |of: &str| {
        browser.run(&format!(
            "[...document.querySelectorAll('#rows .head button')].find(b => b.textContent.startsWith({of:?})).click()"
        ))
    };
    browser.run("document.querySelector('#changes').click()");
    browser.until("the comparison", "return document.querySelector('#rows').innerText.includes('gone')");
    sort("change");
    let hash = browser.run("return location.hash").as_str().unwrap().to_owned();
    assert!(hash.contains("sort=spin%3Achange") && hash.contains("changes="), "{hash}");
    let told = rows();
    let (pcf, gone) = told.split_once(" gone ").unwrap_or_else(|| panic!("{told}"));
    assert!(pcf.starts_with("pcf mutex make") && pcf.contains(" 0.500 +"), "{told}");
    assert!(gone.contains(" 3.000 -3.000"), "{told}");
    browser.picture("changes.png");
    // And beside the time before, which was the same.
    choose("#against", "before");
    browser.until("the time before", "return !document.querySelector('#rows').innerText.includes('gone')");
    assert!(text("#rows .head").contains("before"), "{}", text("#rows .head"));
    browser.run("document.querySelector('#changes').click()");
    browser.until("no comparison", "return !document.querySelector('#rows').innerText.includes('before')");
    browser.run("document.activeElement.blur()");
    browser.keys("/xyz");
    browser.until("the filter", "return document.querySelector('#rows').innerText.includes('No rows')");

    // What is exported is what is shown: filtered, in the order of the column that was clicked, which way it was.
    let export = |what: &str, form: usize| {
        browser.run(&format!(
            "window.saved = null; document.querySelectorAll('[data-export={what}] a')[{form}].click()"
        ));
        browser.until("the export", "return window.saved !== null");
        browser.run("return window.saved").as_str().unwrap().to_owned()
    };
    assert_eq!(export("shown", 0).lines().count(), 1, "its head alone");
    let filter = |words: &str| {
        browser.run(&format!(
            "const f = document.querySelector('#filter'); f.value = {words:?}; f.dispatchEvent(new Event('input'))"
        ))
    };
    filter("PCF mutex");
    assert!(export("shown", 0).lines().nth(1).unwrap().starts_with("pcf,"));
    filter("");
    choose("#table", "cpus");
    browser.until("CPUs", "return document.querySelector('#rows').innerText.includes('intr')");
    for (clicks, first) in [(1, "1"), (2, "0")] {
        browser.run(
            "[...document.querySelectorAll('#rows .head button')].find(b => b.textContent.startsWith('intr')).click()",
        );
        let text = export("shown", 0);
        let at = text.lines().next().unwrap().split(',').position(|name| name == "CPU").unwrap();
        let cpus: Vec<_> = text.lines().skip(1).map(|row| row.split(',').nth(at).unwrap()).collect();
        assert_eq!((cpus[0], cpus.len()), (first, 2), "{clicks} clicks: {text}");
    }
    let lines = export("shown", 1);
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{lines}");
    // The onion and the bands too.
    let onion = export("layers", 0);
    assert!(onion.starts_with("layer,") && onion.contains("\nuser code,"), "{onion}");
    let bands = export("bands", 0);
    assert!(bands.lines().next().unwrap().contains("user code") && bands.lines().count() > 2, "{bands}");

    // Dark, all of it, live again.
    browser.run("document.activeElement.blur()");
    browser.keys("d");
    assert_eq!(browser.run("return document.documentElement.style.colorScheme"), "dark");
    let back = browser.run("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(back, "rgb(20, 22, 26)");
    browser.picture("dark.png");
    let hash = browser.run("return location.hash").as_str().unwrap().to_owned();
    assert!(hash.contains("theme=dark"), "{hash}");
    browser.keys("d");
    assert!(browser.run("return location.hash").as_str().unwrap().contains("theme=light"));

    // A brushed time has a frame, and the bands in it keep their colours.
    let tint = browser.run("return getComputedStyle(document.querySelector('.u-select')).backgroundColor");
    assert_eq!(tint, "rgba(0, 0, 0, 0)");
    assert!(text("#brushed").contains("UTC") || text("#brushed").contains("GMT"), "{}", text("#brushed"));
    assert!(text("#where").contains("times in "), "{}", text("#where"));

    // Keys are shown by one of them, which moves nothing else meanwhile.
    browser.keys("?");
    assert_eq!(browser.run("return document.querySelector('#keys').open"), true);
    assert!(text("#keys").contains("filter the table"), "{}", text("#keys"));
    let before = browser.run("return location.hash");
    browser.keys("l");
    assert_eq!(browser.run("return location.hash"), before);
    browser.keys("?");
    assert_eq!(browser.run("return document.querySelector('#keys').open"), false);
    browser.keys("l");
    browser.until("all of it", "return document.querySelector('#all').hidden");

    // The link shows the same time again.
    browser.go("about:blank");
    browser.go(&link);
    browser.until("the link's time", "return !document.querySelector('#all').hidden");

    // One to a time that is not held says so, and what is held; nothing of another time is shown.
    for of in ["from=100&until=200", "to=200", "from=1e11&until=2e11"] {
        browser.go("about:blank");
        browser.go(&format!("{}/#span=60&{of}", server.address));
        browser.until(
            "what is held",
            "const e = document.querySelector('#error').textContent; \
             return e.startsWith('Nothing is held of ') && e.includes('Tables are held of ')",
        );
        assert_eq!(text("#layers"), "", "{of}");
        assert!(browser.run("return document.querySelector('#report').getAttribute('href')").is_null());
    }
    // The server's reason is shown.
    browser.go("about:blank");
    browser.go(&format!("{}/#span=60&table=nosuch", server.address));
    browser.until(
        "the server's words",
        "return document.querySelector('#error').textContent.includes('there is no such table')",
    );

    // On a telephone the column of the order is seen.
    browser.go("about:blank");
    browser.size(500, 900);
    browser.go(&format!("{}/#span=60&table=cpus&sort=idl", server.address));
    browser.until("the order", "return document.querySelector('#rows [aria-sort]') !== null");
    assert_eq!(
        browser.run(
            "const { left, right } = document.querySelector('#rows [aria-sort]').getBoundingClientRect(); \
             return left >= 0 && right <= innerWidth"
        ),
        true
    );
    browser.picture("phone.png");

    // The link again. A narrow screen is not scrolled sideways.
    browser.go(&link);
    browser.until("the link's time", "return !document.querySelector('#all').hidden");
    browser.size(500, 900);
    browser.until("the narrow page", "return document.querySelector('#grid').clientWidth <= innerWidth");
    assert_eq!(browser.run("return document.documentElement.scrollWidth <= innerWidth"), true);
    browser.picture("narrow.png");

    // The report has the same code in one script.
    browser.go(&format!("{}/report?from=-5", server.address));
    assert!(painted("#flame-on-cpu canvas") > 1000);
    browser.run("document.querySelector('#flame-on-cpu canvas').focus()");
    browser.keys("\u{e015}\u{e015}");
    assert!(text("#flame-on-cpu .read").starts_with("main: "), "{}", text("#flame-on-cpu .read"));
    browser.run("document.querySelector('#locks th:last-child button').click()");
    assert!(browser.run("return document.querySelector('#locks th:last-child').ariaSort").is_string());
    server.end();
}
