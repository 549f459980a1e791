//! Which rule decides about a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dropbehind_observer::rules::{Candidate, Rules};
use dropbehind_observer::rules_file::RulesFile;

fn rules(text: &str) -> RulesFile {
    RulesFile::parse(text).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
}

/// The mode that a path on this disk gets from nobody in particular.
fn mode_on(rules: &RulesFile, path: impl AsRef<Path>, disk: &str) -> Option<String> {
    let path = path.as_ref();
    let settings = rules.settings_for(Candidate {
        path,
        name: None,
        size_bytes: None,
        process: 0,
        disk,
    })?;
    Some(settings.mode.to_string())
}

fn matches(glob: &str, path: impl AsRef<Path>) -> bool {
    let rules = rules(&format!("[[rule]]\npath = {glob:?}\nmode = \"dontcache\""));
    mode_on(&rules, path, "vda").is_some()
}

#[test]
fn a_folder_that_a_pattern_begins_with_is_named() {
    let names = |glob: &str, folder: &str| {
        let rules = rules(&format!(
            "[[rule]]\npath = {glob:?}\nmode = \"dontcache\"\n\
             [[rule]]\npath = \"/mnt/**\"\nmode = \"buffered\""
        ));
        rules.name(Path::new(folder))
    };
    for glob in [
        "/mnt/nas/",
        "/mnt/nas/**",
        "/mnt/nas/a*",
        "/mnt/nas/a/b",
        "/mnt/nas",
    ] {
        assert!(names(glob, "/mnt/nas"), "{glob}");
    }
    for glob in [
        "*.iso",
        "nas/**",
        "/mnt/**",
        "/mnt/nas*",
        "/mnt/nas2/**",
        "/mnt/{nas}/**",
    ] {
        assert!(!names(glob, "/mnt/nas"), "{glob}");
    }
}

#[test]
fn globs_stay_in_a_folder_unless_told() {
    for (glob, yes, no) in [
        ("/a/*", "/a/b", "/a/b/c"),
        ("/a/**", "/a/b/c", "/a"),
        ("/a/**/*.log", "/a/x.log", "/a/x.log.gz"),
        ("**/*.iso", "/deep/down/x.iso", "/x.iso/y"),
        ("/a/?", "/a/b", "/a/bc"),
        ("/a/[0-9]*", "/a/7x", "/a/x7"),
        ("/{a,b}/**", "/b/c", "/c/c"),
        ("/a", "/a", "/a/b"),
        ("/a/\\*", "/a/*", "/a/b"),
        ("/A", "/A", "/a"),
        ("/a/*", "/a/.hidden", "/a/.h/x"),
        ("/a/", "/a/b/c", "/a"),
        ("*.iso", "/deep/down/x.iso", "/x.iso/y"),
    ] {
        assert!(matches(glob, yes), "{glob} {yes}");
        assert!(!matches(glob, no), "{glob} {no}");
    }
    assert!(matches("/a/*", OsStr::from_bytes(b"/a/\xff\n")));
}

#[test]
fn the_first_rule_wins() {
    let rules = rules(
        "mode = \"noreuse\"\n\
         [[rule]]\npath = \"/d/hot/**\"\nmode = \"buffered\"\n\
         [[rule]]\npath = [\"/d/**\", \"/e/*\"]\nmode = \"dontcache\"\n\
         [[rule]]\npath = \"/d/**\"\nmode = \"write-through\"\n",
    );
    assert_eq!(mode_on(&rules, "/d/hot/x", "vda"), None);
    assert_eq!(mode_on(&rules, "/d/x", "vda").as_deref(), Some("dontcache"));
    assert_eq!(mode_on(&rules, "/e/x", "vda").as_deref(), Some("dontcache"));
    assert_eq!(mode_on(&rules, "/f", "vda").as_deref(), Some("noreuse"));
    assert!(!rules.leaves_all_alone());
}

#[test]
fn a_disk_has_a_mode_for_files_that_no_rule_matches() {
    let rules = rules(
        "[[rule]]\npath = \"*.iso\"\nmode = \"dontcache\"\n\
         [disk.\"sdb\"]\nmode = \"write-behind\"\n",
    );
    assert!(rules.want_any());
    assert_eq!(mode_on(&rules, "/a", "sda"), None);
    assert_eq!(
        mode_on(&rules, "/a", "sdb").as_deref(),
        Some("write-behind")
    );
    assert_eq!(
        mode_on(&rules, "/a.iso", "sdb").as_deref(),
        Some("dontcache")
    );
}

#[test]
fn a_disk_can_be_switched_off() {
    let rules = rules("mode = \"write-behind\"\n[disk.\"sdb\"]\nenabled = false\n");
    assert_eq!(
        mode_on(&rules, "/x", "sda").as_deref(),
        Some("write-behind")
    );
    assert_eq!(mode_on(&rules, "/x", "sdb"), None);
}

#[test]
fn an_empty_file_leaves_all_alone() {
    let rules = rules("");
    assert_eq!(mode_on(&rules, "/x", "vda"), None);
    assert!(rules.leaves_all_alone());
}

#[test]
fn sizes_are_compared() {
    let matches = |condition: &str, size_bytes| {
        let rules = rules(&format!("[[rule]]\n{condition}\nmode = \"dontcache\""));
        assert!(rules.ask_for_sizes());
        let candidate = Candidate {
            path: Path::new("/a"),
            name: None,
            size_bytes,
            process: 0,
            disk: "vda",
        };
        rules.settings_for(candidate).is_some()
    };
    for (condition, yes, no) in [
        ("size = '>= 1GiB'", 1 << 30, (1 << 30) - 1),
        ("size = '>1k'", 1025, 1024),
        ("size = '<= 0'", 0, 1),
        ("size = '< 4096'", 4095, 4096),
        ("size = ['<10', '>= 20']", 20, 10),
        ("size = '>= 10'\nnot.size = '> 20'", 20, 21),
    ] {
        assert!(matches(condition, Some(yes)), "{condition} {yes}");
        assert!(!matches(condition, Some(no)), "{condition} {no}");
        assert!(!matches(condition, None), "{condition}");
    }
    assert!(!rules("mode = \"dontcache\"").ask_for_sizes());
}
