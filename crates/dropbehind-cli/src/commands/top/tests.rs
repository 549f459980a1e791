//! What is shown for samples made here, on screens of all sizes.

use super::draw::draw;
use super::lines;
use super::order::Key;
use super::view::{Panel, View, Wish};
use dropbehind_observer::snapshot::{DiskSnapshot, FileSnapshot, FileUser, Snapshot, Totals};
use dropbehind_observer::status::Endpoint;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

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
            state: "active".into(),
            rule: "nightly".into(),
            reason: "is dropped once it is on the disk".into(),
            window_bytes: 8 * MIB,
            users: vec![
                user(
                    4_194_000 + i32::try_from(number).unwrap(),
                    "rsync",
                    Some(true),
                ),
                user(7, "a-program-of-15", None),
            ],
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

fn user(process: i32, program: &str, writes: Option<bool>) -> FileUser {
    FileUser {
        process,
        program: program.into(),
        unit: "backup.service".into(),
        rule: if writes.is_some() {
            "nightly"
        } else {
            "weekly"
        }
        .into(),
        writes,
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
    let screen = screen(&mut view, 280, 30);
    for text in [
        "watch 4711 · 3.0 s · CPU 1.5 % · overflows 3 · events 300 (100/s)",
        "written 5.0 GiB",
        "WRITES AT",
        "1m30s",
        "7.0 MiB/s",
        "SPEED",
        "WAITS",
        " 8.0 MiB sda      dontcache        nightly    active backup.service       4194001 rsync +1   \
         /srv/backup/of/the/day/b001.img",
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
        "     SPEED  WRITTEN FILE",
        " 1.0 MiB/s  3.0 MiB …of/the/day/a000.img",
        "q quit  ? keys  1-2 of 40",
    ] {
        has(&screen, text);
    }
}

#[test]
fn no_size_is_too_small() {
    for panel in [Panel::Files, Panel::Reasons, Panel::Notes, Panel::Help] {
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

fn types(view: &mut View, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(view, KeyCode::Char(letter)), Wish::Nothing);
    }
}

#[test]
fn a_filter_shows_what_has_its_text_until_it_is_cleared() {
    let mut view = viewed(26);
    let mut odd = sample(4, 26);
    odd.files[1].users[0].program = "Postgres".into();
    odd.files[2].users[1].unit = "cron.service".into();
    odd.files[3].rule = "logs".into();
    odd.files[4].mode = "auto".into();
    view.take(odd);
    let shown = |view: &mut View| files_shown(&screen(view, 100, 40));
    for (text, files) in [
        ("C002", "c"),
        ("postgr", "b"),
        ("cron", "c"),
        ("logs", "d"),
        ("auto", "e"),
        ("4194005", "f"),
        ("q?snr", ""),
        ("DAY/", "zyxwvutsrqponmlkjihgfedcba"),
    ] {
        types(&mut view, "/");
        // Keys that do something else belong to the text now.
        types(&mut view, text);
        assert_eq!(shown(&mut view), files, "{text}");
        if text == "logs" {
            press(&mut view, KeyCode::Enter);
            types(&mut view, "s");
            assert_eq!(shown(&mut view), files);
            has(
                &screen(&mut view, 60, 20),
                "q quit  ? keys  /logs (esc clears)",
            );
        }
        assert_eq!(press(&mut view, KeyCode::Esc), Wish::Nothing);
        assert_eq!(shown(&mut view).len(), 26);
    }
    types(&mut view, "/zzz");
    has(
        &screen(&mut view, 60, 20),
        "no file has this text (esc clears it)",
    );
    has(&screen(&mut view, 60, 20), "/zzz   enter keeps, esc clears");
    for _ in 0..4 {
        press(&mut view, KeyCode::Backspace);
    }
    assert_eq!(press(&mut view, KeyCode::Esc), Wish::Quit);
}

/// The cells that are underlined, as a filter's text is.
#[test]
fn the_text_that_was_found_is_underlined() {
    let mut view = viewed(2);
    types(&mut view, "/RSYNC");
    let mut terminal = Terminal::new(TestBackend::new(100, 20)).unwrap();
    terminal.draw(|frame| draw(frame, &mut view)).unwrap();
    let cells = &terminal.backend().buffer().content;
    let underlined = cells
        .iter()
        .filter(|cell| cell.modifier.contains(Modifier::UNDERLINED));
    let text: String = underlined.map(|cell| cell.symbol()).collect();
    assert_eq!(text, "rsyncrsync");
}

/// Information that only a colour carries is lost on many, and to NO_COLOR.
#[test]
fn nothing_is_coloured() {
    for panel in [Panel::Files, Panel::Reasons, Panel::Notes, Panel::Help] {
        let mut view = viewed(9);
        view.panel = panel;
        view.message = Some("the observer run 7 has ended".into());
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        terminal.draw(|frame| draw(frame, &mut view)).unwrap();
        for cell in &terminal.backend().buffer().content {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
    }
}

#[test]
fn the_last_speeds_are_bars() {
    let mut view = View::default();
    let mut written = 0;
    for (second, speed) in [0, 0, 1, 2, 4, 8, 0, 4].into_iter().enumerate() {
        written += speed * MIB;
        let mut sample = sample(second as u64 + 1, 1);
        sample.files[0].written_bytes = written;
        view.take(sample);
    }
    let bars = "  ▁▂▄█ ▄";
    has(&screen(&mut view, 80, 20), &format!("4.0 MiB/s {bars}"));
    // A file that is gone leaves nothing behind.
    view.take(sample(9, 0));
    view.take(sample(10, 1));
    let text = screen(&mut view, 80, 20).join("");
    assert!(text.contains("HISTORY") && !text.contains('▄'), "{text}");
}

/// As an ssh session in half a screen has it. What has no room is left out as a whole.
#[test]
fn sixty_columns_show_who_writes_and_no_part_of_a_number() {
    let mut view = View::default();
    let huge = |seconds| {
        let mut huge = sample(seconds, 9);
        for file in &mut huge.files {
            file.written_bytes = u64::MAX - 9 + seconds;
            file.users = vec![user(4_194_304, "a-program-of-15", None); 8];
        }
        huge
    };
    view.take(huge(1));
    view.take(huge(9));
    for width in [60, 80, 100, 140, 200] {
        for line in screen(&mut view, width, 24) {
            if line.contains(".img") {
                assert!(line.contains("4194304 a-prog… +7"), "{line}");
                assert!(line.contains(" 16 EiB"), "{line}");
            }
        }
    }
    view.message =
        Some("cannot be read (os error 1234567890), as was said above: os error 13".into());
    has(
        &screen(&mut view, 60, 24),
        "cannot be read (os error 1234567890), as was said above: …",
    );
    let lines = screen(&mut view, 60, 24);
    has(&lines, "     SPEED  WRITTEN WHO                FILE");
    for line in &lines {
        assert_eq!(line.chars().count(), 60);
    }
}

#[test]
fn what_becomes_of_files_is_said_in_sentences() {
    let mut view = viewed(2);
    types(&mut view, "i");
    let text = screen(&mut view, 250, 24).join("\n");
    let sentence = "/srv/backup/of/the/day/a000.img: is dropped once it is on the disk. Mode dontcache, \
                    by rule nightly, window 8.0 MiB. Used by: 4194000 rsync of backup.service, \
                    which writes; 7 a-program-of-15 of backup.service, by rule weekly.";
    assert!(text.contains(sentence), "{text}");
    types(&mut view, "i");
    assert_eq!(view.panel, Panel::Files);
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
    has(&screen(&mut view, 60, 30), "ctrl-z   stop");
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
    trick.files[0].rule = "r\u{202e}".into();
    trick.files[0].reason = "z\u{1b}c".into();
    trick.files[0].users = vec![FileUser {
        program: "p\u{1b}[1m\n".into(),
        unit: "u\u{9b}2J\u{202e}".into(),
        rule: "s\u{1b}c".into(),
        ..FileUser::default()
    }];
    trick.notes = vec!["y\u{1b}c".into()];
    view.take(trick.clone());
    let lines = screen(&mut view, 200, 30);
    has(&lines, "/a\\u{1b}[2J\\nb");
    types(&mut view, "i");
    let reasons = screen(&mut view, 200, 30);
    let text = lines::table(trick);
    let bad = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    for text in [text, lines.join(""), reasons.join("")] {
        assert!(!text.contains(bad), "{text}");
    }
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
