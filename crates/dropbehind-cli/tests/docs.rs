//! What docs/origins.md names is there: files, tests and scenarios.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.parent().unwrap().to_owned()
}

/// The text of all sources below a folder, or of one file.
fn sources(path: &Path) -> String {
    let Ok(entries) = fs::read_dir(path) else {
        return fs::read_to_string(path).unwrap_or_default();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| sources(path)).collect()
}

/// What stands between two signs, each time.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(open).skip(1);
    parts.filter_map(move |part| Some(part.split_once(close)?.0))
}

#[test]
fn origins_names_what_is_there() {
    let docs = repository().join("docs");
    let text = fs::read_to_string(docs.join("origins.md")).unwrap();
    let mut links = 0;
    for link in between(&text, "](", ")") {
        let link = link.replace('\n', "");
        if !link.starts_with("http") && !link.starts_with('#') {
            // `.ci/book links` looks for the heading.
            let path = link.split('#').next().unwrap();
            assert!(docs.join(path).exists(), "{link}");
            links += 1;
        }
    }
    let mut tests = 0;
    let scenarios = sources(&repository().join("crates/dropbehind-bench/src/scenarios"));
    // Code spans are every second part.
    for code in text.split('`').skip(1).step_by(2) {
        if let Some(scenario) = code.strip_prefix("bench ") {
            let name = scenario.split(' ').next().unwrap();
            let known = name.starts_with("--") || name == "NAME";
            assert!(
                known || scenarios.contains(&format!("\"{name}\"")),
                "{code}"
            );
        }
        let Some((place, name)) = code.split_once(' ') else {
            continue;
        };
        let Some((package, target)) = place.split_once('/') else {
            continue;
        };
        if !package.starts_with("dropbehind") {
            continue;
        }
        let folder = repository().join("crates").join(package);
        let found = match target {
            "lib" => sources(&folder.join("src")),
            target => {
                let file = folder.join("tests").join(format!("{target}.rs"));
                sources(&file) + &sources(&folder.join("tests").join(target))
            }
        };
        // A macro makes modules of tests, each for a kind of place.
        let mut is_there = [format!("fn {name}("), format!("@on {name},")].into_iter();
        assert!(is_there.any(|test| found.contains(&test)), "{code}");
        tests += 1;
    }
    assert!(links >= 20 && tests >= 40, "{links} links, {tests} tests");
}
