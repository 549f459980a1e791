//! What is shown for samples made here, on screens of all sizes.

use super::draw::draw;
use super::lines;
use super::order::Key;
use super::view::{Panel, View, Wish};
use dropbehind_observer::snapshot::{DiskSnapshot, FileSnapshot, Snapshot, Totals};
use dropbehind_observer::status::Endpoint;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const MIB: u64 = 1 << 20;

/// A sample after this many seconds of work: the file `a` was written at 1 MiB/s, `b` at
/// 2 MiB/s, and so on.
fn sample(seconds: u64, files: u64) -> Snapshot {
    let file = |number: u64| {
        let letter = char::from(b'a' + u8::try_from(number % 26).unwrap());
        FileSnapshot {
            path: format!("/srv/backup/of/the/day/{letter}{number:03}.img").into(),
            disk: "sda".into(),
            mode: "dontcache".into(),
            written_bytes: seconds * (number + 1) * MIB,
            // In reverse order.
            cached_bytes: (files - number) * MIB,
            dirty_bytes: (number % 2) * MIB,
            state: "writing behind".into(),
            ..FileSnapshot::default()
        }
    };
    let disk = |name: &str, written_bytes| DiskSnapshot {
        name: name.into(),
        written_bytes,
        yielded_ns: 90_000_000_000,
        ..DiskSnapshot::default()
    };
    Snapshot {
        elapsed_ns: seconds * 1_000_000_000,
        kind: "watch".into(),
        process: 4711,
        traced: true,
        cpu_ns: seconds * 15_000_000,
        totals: Totals {
            events: seconds * 100,
            overflows: 3,
            written_bytes: 5 << 30,
            ..Totals::default()
        },
        rules: Vec::new(),
        rules_read: None,
        disks: vec![disk("sda", seconds * 7 * MIB), disk("nvme0n1", 0)],
        files: (0..files).map(file).collect(),
        notes: vec!["overlayfs is out of reach".into(), "no bfq".into()],
    }
}

fn viewed(files: u64) -> View {
    let mut view = View::default();
    view.take(sample(1, files));
    view.take(sample(3, files));
    view
}

fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(move |x| buffer[(x, y)].symbol()).collect();
    (0..height).map(row).collect()
}

fn press(view: &mut View, code: KeyCode) -> Wish {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// The first letters of the files' names, from the top.
fn files_shown(screen: &[String]) -> String {
    let names = screen.iter().filter(|line| line.contains(".img"));
    names
        .map(|line| {
            let end = line.find(".img").unwrap();
            line[..end].chars().rev().nth(3).unwrap()
        })
        .collect()
}

#[track_caller]
fn has(screen: &[String], text: &str) {
    assert!(screen.join("\n").contains(text), "{text}\n{screen:#?}");
}

#[test]
fn a_large_screen_shows_everything() {
    let mut view = viewed(4);
    let screen = screen(&mut view, 220, 30);
    for text in [
        "watch 4711 · 3.0 s · CPU 1.5 % · overflows 3 · events 300 (100/s)",
        "written 5.0 GiB",
        "WRITES AT",
        "1m30s",
        "7.0 MiB/s",
        "SPEED",
        "WAITS",
        "writing behind       /srv/backup/of/the/day/b001.img",
        "2.0 MiB/s",
        "n: 1 more. overlayfs is out of reach",
        "q quit",
    ] {
        has(&screen, text);
    }
    assert_eq!(files_shown(&screen), "abcd");
}

#[test]
fn a_small_screen_shows_what_matters_most() {
    let mut view = viewed(40);
    let screen = screen(&mut view, 40, 10);
    for text in [
        "watch 4711 · 3.0 s · CPU 1.5 %",
        "overflows 3 · events 300 (100/s)",
        "DISK        WRITTEN    DIRTY   CACHED",
        " WRITTEN    DIRTY   CACHED FILE",
        " 3.0 MiB        0   40 MiB …day/a000.img",
        "q quit  ? keys  1-2 of 40",
    ] {
        has(&screen, text);
    }
}

#[test]
fn no_size_is_too_small() {
    for panel in [Panel::Files, Panel::Notes, Panel::Help] {
        for width in [1, 2, 3, 5, 8, 13, 21, 30, 40, 59] {
            for height in 1..20 {
                let mut view = viewed(9);
                view.panel = panel;
                view.scroll = usize::MAX;
                let lines = screen(&mut view, width, height);
                if width >= 30 {
                    has(&lines[..1], "watch 4711");
                }
                if width >= 30 && height >= 8 && panel == Panel::Files {
                    has(&lines, "i008.img");
                }
            }
        }
    }
}

#[test]
fn files_are_sorted_by_any_key_and_back() {
    let mut view = viewed(4);
    let mut seen = Vec::new();
    for _ in 0..12 {
        let order = files_shown(&screen(&mut view, 200, 30));
        seen.push((view.order.key, order));
        press(&mut view, KeyCode::Char('s'));
    }
    let order_of = |key| &seen.iter().find(|(one, _)| *one == key).unwrap().1;
    assert_eq!(order_of(Key::Activity), "abcd");
    assert_eq!(order_of(Key::Speed), "dcba");
    assert_eq!(order_of(Key::Written), "dcba");
    assert_eq!(order_of(Key::Cached), "abcd");
    // Stable: equal rows stay in the observer's order.
    assert_eq!(order_of(Key::Dirty), "bdac");
    assert_eq!(order_of(Key::Path), "abcd");
    assert_eq!(seen[0].0, seen[11].0, "the keys go round");

    press(&mut view, KeyCode::Char('r'));
    press(&mut view, KeyCode::Char('<'));
    assert_eq!(view.order.key, Key::Activity);
    assert_eq!(files_shown(&screen(&mut view, 200, 30)), "dcba");
}

#[test]
fn the_column_sorted_by_is_in_sight() {
    let mut view = viewed(4);
    while view.order.key != Key::Kept {
        press(&mut view, KeyCode::Char('s'));
    }
    has(&screen(&mut view, 40, 12), "KEPTv");
    press(&mut view, KeyCode::Char('r'));
    has(&screen(&mut view, 40, 12), "KEPT^");
}

#[test]
fn files_scroll_and_stop_at_both_ends() {
    let mut view = viewed(26);
    let all = |view: &mut View| files_shown(&screen(view, 100, 14));
    assert_eq!(all(&mut view), "abcdef");
    press(&mut view, KeyCode::Down);
    assert_eq!(all(&mut view), "bcdefg");
    press(&mut view, KeyCode::PageDown);
    assert_eq!(all(&mut view), "hijklm");
    press(&mut view, KeyCode::End);
    assert_eq!(all(&mut view), "uvwxyz");
    press(&mut view, KeyCode::Down);
    assert_eq!(all(&mut view), "uvwxyz");
    press(&mut view, KeyCode::Up);
    assert_eq!(all(&mut view), "tuvwxy");
    press(&mut view, KeyCode::Home);
    press(&mut view, KeyCode::Up);
    assert_eq!(all(&mut view), "abcdef");
    // With fewer files than before, those that are left are in sight.
    press(&mut view, KeyCode::End);
    screen(&mut view, 100, 14);
    view.take(sample(4, 2));
    assert_eq!(all(&mut view), "ab");
}

#[test]
fn speeds_need_two_samples_of_the_same_observer() {
    let mut view = View::default();
    view.take(sample(1, 1));
    let speed = |view: &View| view.files()[0].speed;
    assert_eq!(speed(&view), None);
    view.take(sample(3, 1));
    assert_eq!(speed(&view), Some(MIB));
    // The same name, but less was written: it is another file.
    let mut anew = sample(4, 1);
    anew.files[0].written_bytes = 0;
    view.take(anew);
    assert_eq!(speed(&view), Some(0));
    let mut other = sample(9, 1);
    other.process = 1;
    view.take(other);
    assert_eq!(speed(&view), None);
    view.take(sample(1, 1));
    assert_eq!(speed(&view), None);
}

#[test]
fn notes_and_help_come_and_go() {
    let mut view = viewed(4);
    press(&mut view, KeyCode::Char('n'));
    let lines = screen(&mut view, 40, 12);
    has(&lines, "- overlayfs is out of reach");
    has(&lines, "- no bfq");
    press(&mut view, KeyCode::Down);
    let lines = screen(&mut view, 40, 12);
    assert!(!lines.join("").contains("- overlayfs"), "{lines:#?}");
    press(&mut view, KeyCode::Char('?'));
    has(&screen(&mut view, 60, 20), "ctrl-z   stop");
    assert_eq!(press(&mut view, KeyCode::Esc), Wish::Nothing);
    assert_eq!(view.panel, Panel::Files);
    assert_eq!(press(&mut view, KeyCode::Esc), Wish::Quit);
    assert_eq!(press(&mut view, KeyCode::Char('q')), Wish::Quit);
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(view.key(control('c')), Wish::Quit);
    assert_eq!(view.key(control('z')), Wish::Suspend);
}

#[test]
fn observers_stand_in_tabs() {
    let endpoint = |process| Endpoint {
        process,
        path: format!("/run/{process}").into(),
    };
    let mut view = View::new(vec![endpoint(0), endpoint(7)]);
    has(&screen(&mut view, 40, 10), "waiting for the first figures");
    has(&screen(&mut view, 40, 10), " watch  run 7 ");
    assert_eq!(press(&mut view, KeyCode::Tab), Wish::Observer(1));
    assert_eq!(press(&mut view, KeyCode::BackTab), Wish::Observer(1));
    // There is another one before it: the one that is shown stays.
    view.show(1);
    view.update_endpoints(vec![endpoint(0), endpoint(5), endpoint(7)]);
    assert_eq!(view.current, 2);
    // The one that is shown is gone, which its feed will report.
    view.update_endpoints(vec![endpoint(0)]);
    assert_eq!(view.endpoints.len(), 3);
}

#[test]
fn names_play_no_tricks() {
    let mut view = viewed(1);
    let mut trick = sample(4, 1);
    trick.files[0].path = "/a\u{1b}[2J\nb".into();
    trick.files[0].state = "x\u{7}".into();
    trick.notes = vec!["y\u{1b}c".into()];
    view.take(trick.clone());
    let lines = screen(&mut view, 200, 30);
    has(&lines, "/a\\u{1b}[2J\\nb");
    let text = lines::table(trick);
    let bad = |letter: char| letter.is_control() && letter != '\n';
    assert!(
        !text.contains(bad) && !lines.join("").contains(bad),
        "{text}"
    );
}

#[test]
fn a_table_without_a_screen_holds_all() {
    let text = lines::table(sample(3, 30));
    for word in [
        "watch 4711",
        "WRITES AT",
        "nvme0n1",
        "/srv/backup/of/the/day/d029.img\n",
        "note: no bfq\n",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[test]
fn nothing_to_do_is_said() {
    let mut view = View::default();
    view.take(Snapshot::default());
    let lines = screen(&mut view, 60, 12);
    has(&lines, "no disk has work");
    has(&lines, "no file is observed now");
}
