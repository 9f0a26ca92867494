//! include/ncpu.h matches the sources. `BLESS=1` writes it.

#[test]
fn header_is_current() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml"))
        // cbindgen finds the modules from there.
        .with_src(root.join("src/lib.rs"))
        .generate()
        .expect("src can be put into C")
        .write(&mut header);
    // Rust's safety sections do not belong in C.
    let header = String::from_utf8(header).expect("UTF-8");
    let (mut text, mut skip) = (String::new(), false);
    for line in header.lines() {
        match line.trim() {
            "// # Safety" => {
                skip = true;
                // The empty line before it.
                text.truncate(text.strip_suffix("//\n").unwrap_or(&text).len());
            }
            comment if comment.starts_with("//") && skip => {}
            _ => {
                skip = false;
                // The empty line before a section that was left out.
                if !line.starts_with("//") && text.ends_with("\n//\n") {
                    text.truncate(text.len() - 3);
                }
                text += line;
                text.push('\n');
            }
        }
    }
    // cbindgen does not know that libc's is a C struct.
    let text = text.replace("const timespec", "const struct timespec");
    let path = root.join("include/ncpu.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("write include/ncpu.h");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "include/ncpu.h is old: BLESS=1 cargo test -p libncpu-c --test header");
}
