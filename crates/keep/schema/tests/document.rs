//! `docs/schema.md` is what the schema generates.

use std::path::Path;

#[test]
fn the_manuals_page_is_current() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema.md");
    let generated = ncpu_schema::document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&page, &generated).expect("docs/schema.md is written");
    }
    let there = std::fs::read_to_string(&page).unwrap_or_default();
    let differs = there.lines().zip(generated.lines()).position(|(a, b)| a != b);
    assert!(there == generated, "docs/schema.md is out of date (line {differs:?}): run `make schema`");
}
