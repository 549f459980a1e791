//! The header that is checked in is the one that the source gives, and the manual page has all of it.

use std::path::Path;

/// `DROPBEHIND_WRITE_HEADER=1` writes it anew.
#[test]
fn the_header_is_that_of_the_source() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(home.join("cbindgen.toml")).expect("a configuration");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(home.join("src/lib.rs"))
        .generate()
        .expect("the header")
        .write(&mut made);
    let path = home.join("dropbehind.h");
    if std::env::var_os("DROPBEHIND_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).expect("dropbehind.h");
    assert!(
        there.as_bytes() == made,
        "dropbehind.h is not that of the source: run this test with DROPBEHIND_WRITE_HEADER=1"
    );
}

#[test]
fn the_manual_page_names_every_function() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name| std::fs::read_to_string(home.join(name)).unwrap();
    let (header, page) = (read("dropbehind.h"), read("dropbehind.3"));
    let lines = header.lines().filter(|line| !line.starts_with("//"));
    let functions = lines.filter_map(|line| {
        let (head, _) = line.split_once('(')?;
        head.split([' ', '*'])
            .find(|word| word.starts_with("dropbehind_") && head.ends_with(word))
    });
    let functions: Vec<&str> = functions.collect();
    assert!(functions.len() > 30, "{functions:?}");
    for function in functions {
        assert!(page.contains(&format!("{function}(")), "{function}");
    }
}
