//! The example that is shipped, the words for people, and remarks.

use std::path::Path;

use dropbehind_observer::rules::{Candidate, Rules, Settings};
use dropbehind_observer::rules_file::RulesFile;
use dropbehind_testbed::Scratch;

fn example() -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    std::fs::read_to_string(packaging.join("dropbehind.toml")).unwrap()
}

/// The example with every key switched on.
fn uncommented() -> String {
    let example = example();
    let lines = example.lines().map(|line| {
        let key = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
        key.unwrap_or(line).to_owned() + "\n"
    });
    lines.collect::<Vec<_>>().concat()
}

fn candidate(path: &str) -> Candidate<'_> {
    Candidate {
        path: Path::new(path),
        name: None,
        size_bytes: None,
        process: 0,
        disk: "sda",
    }
}

#[test]
fn the_example_leaves_all_alone_as_shipped() {
    let rules = RulesFile::parse(&example()).unwrap();
    assert!(rules.leaves_all_alone());
    assert_eq!(rules.rule_count(), 0);
    assert_eq!(rules.settings_for(candidate("/var/backups/x")), None);
    assert!(
        rules.remarks()[0].contains("nothing to do"),
        "{:?}",
        rules.remarks()
    );
}

#[test]
fn the_example_shows_every_key() {
    let text = uncommented();
    let rules = RulesFile::parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}\n{text}"));
    assert_eq!(rules.rule_count(), 2);
    let table: toml::Spanned<toml::de::DeTable<'_>> = toml::de::DeTable::parse(&text).unwrap();
    let table = table.get_ref();
    // As many keys as the reader knows; it refuses others.
    assert_eq!(table.len(), 7);
    let rule = table["rule"].get_ref().as_array().unwrap()[0].get_ref();
    assert_eq!(rule.as_table().unwrap().len(), 13);
    let disk = table["disk"].get_ref().as_table().unwrap()["sda"].get_ref();
    assert_eq!(disk.as_table().unwrap().len(), 5);
}

#[test]
fn rules_are_explained() {
    let rules = RulesFile::parse(&uncommented()).unwrap();
    let text = rules.to_string();
    for line in [
        "1. \"dumps\" (line ",
        "): dontcache\n",
        "   if the path is /var/backups/ or /srv/dumps/*.{sql,dump} or *.iso\n",
        "   and the size is >= 64MiB\n",
        "   and the program is pg_dump or rsync or /opt/backup/bin/*\n",
        "   and the user is postgres or 1000\n",
        "   and the unit is backup-*.service or batch.slice\n",
        "   and the cgroup is /machine.slice/*\n",
        "   but not if the path is /srv/dumps/hot/\n   nor if the program is pg_restore\n",
        "what writes brought in is dropped once clean, what reads did stays\n",
        "   window 32 MiB, request 1.0 MiB, at most dirty 96 MiB\n",
        "2. (line ",
        "): left alone\n",
        "all other files on other disks: write-behind\n   written back a window behind appending writers; pages stay\n",
        "disk sda: write-behind, unless a rule says otherwise; window 4.0 MiB, request 512 KiB, at most dirty 96 MiB\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let off = RulesFile::parse("[disk.sda]\nenabled = false")
        .unwrap()
        .to_string();
    assert!(
        off.contains("all files: left alone\ndisk sda: off"),
        "{off}"
    );
}

#[test]
fn what_is_probably_not_meant_is_remarked() {
    let home = Scratch::new().unwrap();
    let real = std::fs::canonicalize(home.path()).unwrap();
    std::fs::create_dir(real.join("folder")).unwrap();
    std::os::unix::fs::symlink(real.join("folder"), real.join("link")).unwrap();
    let remarks_of = |path: &str| {
        let path = real.join(path);
        let text = format!("\n[[rule]]\npath = {path:?}\nmode = \"noreuse\"\n");
        RulesFile::parse(&text).unwrap().remarks()
    };
    assert_eq!(remarks_of("folder/**"), [""; 0]);
    assert_eq!(remarks_of("folder/"), [""; 0]);
    for path in ["not-there/*", "not-there/", "not-there/file"] {
        let there = format!(
            "line 2: there is no folder {}/not-there now",
            real.display()
        );
        assert_eq!(remarks_of(path), [there]);
    }
    assert_eq!(remarks_of("file"), [""; 0]);
    let home = "[[rule]]\npath = \"~/Downloads/\"\nmode = \"noreuse\"\n";
    let home = RulesFile::parse(home).unwrap().remarks();
    assert!(home[0].contains("~/Downloads/ matches only"), "{home:?}");
    let nobody = "[[rule]]\nuser = [\"root\", \"7\", \"no-such\"]\nmode = \"noreuse\"\n";
    let nobody = RulesFile::parse(nobody).unwrap().remarks();
    assert_eq!(nobody, ["line 1: there is no user no-such now"]);
    let anywhere = "[[rule]]\npath = \"tmp\"\nmode = \"noreuse\"\n";
    assert_eq!(RulesFile::parse(anywhere).unwrap().remarks(), [""; 0]);
    let folder = remarks_of("folder");
    assert!(
        folder[0].starts_with("line 2: ") && folder[0].contains("/folder/**"),
        "{folder:?}"
    );
    let link = remarks_of("link/*");
    assert!(
        link[0].contains(&format!("to {}/folder, ", real.display())),
        "{link:?}"
    );

    let disk = |name: &str| {
        let text = format!("mode = \"noreuse\"\n[disk.{name:?}]\nwindow = \"1M\"");
        RulesFile::parse(&text).unwrap().remarks()
    };
    assert!(disk("nosuch")[0].contains("there is no disk nosuch"));
    assert_eq!(disk("nfs-0:99"), [""; 0]);
    let there = std::fs::read_dir("/sys/block").unwrap().next();
    let there = there.expect("a disk").unwrap().file_name();
    assert_eq!(disk(there.to_str().unwrap()), [""; 0]);
}

#[test]
fn a_rule_that_never_decides_is_remarked() {
    let is_idle = |first: &str, second: &str| {
        let rule = |conditions| format!("[[rule]]\nmode = \"noreuse\"\n{conditions}\n");
        let rules = RulesFile::parse(&(rule(first) + &rule(second))).unwrap();
        let remarks = rules.remarks();
        let mut idle = remarks
            .iter()
            .filter(|remark| remark.contains("this rule has no effect"));
        idle.any(|remark| remark.starts_with("line ") && remark.contains("the one in line 1 "))
    };
    for (first, second) in [
        ("path = '/**'", "path = '/tmp/*.iso'"),
        (
            "path = ['*.log', '/tmp/']",
            "path = ['/tmp/a/', '/tmp/b.log']",
        ),
        ("path = '/tmp/**'", "path = '/tmp/'\nprogram = 'dd'"),
        ("path = '*.iso'", "path = '*.iso'\nuser = 'root'"),
        ("program = ['d?', '/bin/*']", "program = ['dd', '/bin/cp']"),
        ("user = ['root', 'bin']", "user = 'bin'\nnot.program = 'dd'"),
        ("size = '> 1k'", "size = ['> 1M', '>= 2M']"),
        ("unit = 'a*'", "unit = 'ab'"),
        ("cgroup = '/a/'", "cgroup = '/a/b'"),
    ] {
        assert!(is_idle(first, second), "{first} {second}");
        assert!(!is_idle(second, first), "{second} {first}");
    }
    for (first, second) in [
        ("path = '/tmp/*'", "path = '/tmp/*/*'"),
        ("path = '/tmp/'", "path = '/tmpx/a'"),
        ("path = '/tmp/'", "program = 'dd'"),
        ("path = '/tmp/'\nnot.program = 'dd'", "path = '/tmp/'"),
        ("path = '/tmp/'\nuser = 'root'", "path = '/tmp/'"),
        ("program = 'dd'", "program = '/bin/dd'"),
        ("size = ['<1k', '>2k']", "size = '<3k'"),
    ] {
        assert!(!is_idle(first, second), "{first} {second}");
    }
}

#[test]
fn the_nearest_place_sets_a_size() {
    let rules = RulesFile::parse(
        "window = \"1MiB\"\nrequest = 65536\nmax_dirty = \"1GiB\"\nreads = false\nmode = \"behind+drop\"\n\
         [[rule]]\npath = \"/rule/**\"\nmode = \"dontcache\"\nwindow = \"3MiB\"\nmax_dirty = \"64MiB\"\nreads = true\n\
         [disk.sda]\nwindow = \"2MiB\"\n",
    )
    .unwrap();
    let settings = |path, disk| {
        let path = Path::new(path);
        rules
            .settings_for(Candidate {
                path,
                name: None,
                size_bytes: None,
                process: 0,
                disk,
            })
            .unwrap()
    };
    let expected = Settings {
        mode: "behind+drop".parse().unwrap(),
        window_bytes: Some(1 << 20),
        request_bytes: Some(64 << 10),
        max_dirty_bytes: Some(1 << 30),
        reads: false,
        rule: 0,
    };
    assert_eq!(settings("/x", "sdb"), expected);
    assert_eq!(
        settings("/x", "sda"),
        Settings {
            window_bytes: Some(2 << 20),
            ..expected
        }
    );
    let ruled = Settings {
        mode: dropbehind_policy::Mode::DONTCACHE,
        window_bytes: Some(3 << 20),
        max_dirty_bytes: Some(64 << 20),
        reads: true,
        rule: 1,
        ..expected
    };
    assert_eq!(settings("/rule/x", "sda"), ruled);
    assert_eq!(settings("/rule/x", "sdb"), ruled);
    let bare = RulesFile::parse("mode = \"write-behind\"").unwrap();
    let bare = bare.settings_for(candidate("/x")).unwrap();
    assert_eq!(
        (bare.window_bytes, bare.request_bytes, bare.reads),
        (None, None, true)
    );
}
