//! The header that is checked in is the one that the source gives.

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
