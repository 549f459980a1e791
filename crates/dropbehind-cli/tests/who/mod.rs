//! Who uses a file, as `top` tells it and as `/proc` shows it.

use serde_json::Value;

/// What `$RUN` and, unless it is in `PATH`, `$DROPBEHIND` run in it.
pub(crate) const SCRIPT: &str = include_str!("script.sh");

/// Compares what the script has printed.
#[track_caller]
pub(crate) fn compare(printed: &str) {
    let (found, sample) = printed.split_once('\n').expect("two lines");
    let mut words = found.split(' ');
    let process: i64 = words.next().unwrap().parse().expect(found);
    assert_eq!(words.next(), Some("dd"), "{printed}");
    let sample: Value = serde_json::from_str(sample).expect(sample);
    let files = sample["files"].as_array().unwrap();
    let is_data = |file: &&Value| file["path"].as_str().unwrap().ends_with("/data");
    let file = files.iter().find(is_data).expect("the file that dd writes");
    let user = &file["users"][0];
    assert_eq!(user["process"], process, "{printed}");
    assert_eq!(user["program"], "dd");
    assert_ne!(user["writes"], false, "{printed}");
    let unit = user["unit"].as_str().unwrap();
    assert!(found.contains(unit), "{unit}: {found}");
    assert_eq!(
        unit.is_empty(),
        !found.contains(".service") && !found.contains(".scope"),
        "{found}"
    );
    assert_eq!(file["mode"], "dontcache");
    assert_eq!(file["reason"], "is dropped once it is on the disk");
    assert!(
        file["window_bytes"].as_u64().unwrap() >= 1 << 20,
        "{printed}"
    );
}
