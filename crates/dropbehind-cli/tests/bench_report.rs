//! Reports and comparisons.

mod bench;
mod user;

use bench::{is_well_formed, results};
use dropbehind_testbed::{Need, need};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use user::User;

/// A small benchmark, with everything a report can hold.
fn benchmark(user: &User) -> Value {
    user.does(
        "bench seq-write-1m append-log backup scale-threads-4 --size 4MiB --runs 2 --modes \
         buffered,dontcache,direct,alone --json r.json --html r.html --csv r.csv --markdown r.md",
    );
    results(&user.file("r.json"))
}

fn save(path: &Path, results: &Value) {
    std::fs::write(path, results.to_string()).unwrap();
}

/// The same results with speeds that are so many times as high.
fn faster(results: &Value, times: u64) -> Value {
    let mut results = results.clone();
    for scenario in results["scenarios"].as_array_mut().unwrap() {
        for mode in scenario["modes"].as_array_mut().unwrap() {
            for run in mode["runs"].as_array_mut().unwrap() {
                run["disturbances"] = Value::Array(Vec::new());
                for role in run["roles"].as_object_mut().unwrap().values_mut() {
                    for key in ["io_ns", "total_ns"] {
                        role[key] = (role[key].as_u64().unwrap() / times).into();
                    }
                }
            }
        }
    }
    results
}

#[test]
fn a_report_is_made_and_can_be_made_again() {
    let user = User::new();
    let found = benchmark(&user);
    let html = std::fs::read_to_string(user.file("r.html")).unwrap();
    is_well_formed(&html);
    for part in [
        "<h2>In short</h2>",
        "<h2 id=\"verdicts\">",
        "<dt id=\"metric-p99\">p99</dt>",
        "href=\"#mode-dontcache\" title=\"ours: written back at once, dropped once clean\"",
        "<section class=\"scenario\" id=\"append-log\"",
        "prefers-color-scheme: dark",
        "name=\"viewport\"",
        "O_DIRECT cannot write records",
        "<polyline",
        "Latency of calls of the server",
        "CPU program s/GiB",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // Everything that is shown is in the saved results.
    user.does("bench report r.json --html again.html");
    assert_eq!(
        std::fs::read_to_string(user.file("again.html")).unwrap(),
        html
    );
    let text = user.does("bench report r.json").text();
    assert!(text.contains("seq-write-1m: a new file") && text.contains("dontcache"));
    // And nothing in them is taken for markup.
    let mut hostile = found;
    hostile["environment"]["kernel"] = "</title><script>alert(1)</script>".into();
    hostile["environment"]["processor"] = "<img src=x onerror=y>".into();
    let scenario = &mut hostile["scenarios"][0];
    scenario["summary"] = "<img src=\"x\" onerror='y'>&amp;".into();
    let role = scenario["role"].as_str().unwrap().to_owned();
    let other = "</caption><img src=x onerror=y>";
    scenario["role"] = other.into();
    for mode in scenario["modes"].as_array_mut().unwrap() {
        for run in mode["runs"].as_array_mut().unwrap() {
            let roles = run["roles"].as_object_mut().unwrap();
            let figures = roles.remove(&role).unwrap();
            roles.insert(other.to_owned(), figures);
        }
    }
    save(&user.file("hostile.json"), &hostile);
    for command in [
        "bench report hostile.json --html hostile.html",
        "bench compare hostile.json r.json --html hostile.html",
        "bench compare r.json hostile.json --html hostile.html",
    ] {
        user.does(command);
        let html = std::fs::read_to_string(user.file("hostile.html")).unwrap();
        is_well_formed(&html);
        assert!(!html.contains("<script>alert") && !html.contains("<img"));
    }
}

/// In a directory of many users, another one's link must not lead to a file of ours.
#[test]
fn a_report_is_written_through_no_link() {
    let user = User::new();
    let found = benchmark(&user);
    save(&user.file("a.json"), &found);
    let mine = user.has("mine", 10);
    for name in ["again.csv.new", "again.html.new"] {
        std::os::unix::fs::symlink("mine", user.file(name)).unwrap();
    }
    user.does("bench report a.json --csv again.csv --html again.html");
    user::holds(&mine, 10);
    for name in ["csv", "html"] {
        let [made, again] = ["r", "again"].map(|stem| user.file(&format!("{stem}.{name}")));
        assert_eq!(std::fs::read(made).unwrap(), std::fs::read(again).unwrap());
    }
    // What cannot take its place is not left behind.
    let names = || std::fs::read_dir(user.file("")).unwrap().count();
    let before = names();
    let full = "ulimit -f 1; dropbehind bench report a.json --html full.html";
    user.sh(full).fails(1, "full.html");
    assert_eq!(names(), before);
}

#[test]
fn other_programs_get_tables() {
    let user = User::new();
    let found = benchmark(&user);
    user.does("bench report r.json --csv again.csv --markdown again.md");
    for (first, again) in [("r.csv", "again.csv"), ("r.md", "again.md")] {
        let text = std::fs::read_to_string(user.file(first)).unwrap();
        assert_eq!(std::fs::read_to_string(user.file(again)).unwrap(), text);
    }
    let csv = std::fs::read_to_string(user.file("r.csv")).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        lines[0].join(" "),
        "scenario mode role metric unit better median lowest highest runs"
    );
    for line in &lines {
        assert_eq!(line.len(), 10, "{line:?}");
    }
    // Its speed, as the results have it.
    let speeds: Vec<f64> = calm(&found, "seq-write-1m", "buffered")
        .iter()
        .map(|run| {
            let writer = &run["roles"]["writer"];
            writer["bytes"].as_f64().unwrap() * 1e3 / writer["total_ns"].as_f64().unwrap()
        })
        .collect();
    let line = lines
        .iter()
        .find(|line| line[..4] == ["seq-write-1m", "buffered", "writer", "speed"])
        .unwrap();
    assert_eq!(line[4], "MB/s");
    assert_eq!(line[9], speeds.len().to_string());
    let numbers: Vec<f64> = line[6..9].iter().map(|one| one.parse().unwrap()).collect();
    let (low, high) = (
        speeds.iter().copied().fold(f64::MAX, f64::min),
        speeds.iter().copied().fold(0.0, f64::max),
    );
    for (number, speed) in numbers.iter().zip([f64::midpoint(low, high), low, high]) {
        assert!((number / speed - 1.0).abs() < 1e-6, "{line:?} {speeds:?}");
    }
    let markdown = std::fs::read_to_string(user.file("r.md")).unwrap();
    for part in [
        "## append-log\n",
        "| mode | MB/s | (range) |",
        "\n|---|--:|--:|",
        "direct: not available: O\\_DIRECT cannot write records",
    ] {
        assert!(markdown.contains(part), "{part}\n{markdown}");
    }
    // Every row of a table has as many cells as its heading.
    for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
        let counts: Vec<usize> = table
            .trim()
            .lines()
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{table}");
    }
    // What cannot be written is an error.
    user.runs("bench report r.json --csv no/such/folder.csv")
        .fails(1, "no/such");
}

/// The runs of a mode that count: those that nobody disturbed, where there are some.
fn calm<'a>(results: &'a Value, scenario: &str, mode: &str) -> Vec<&'a Value> {
    let all = bench::runs(results, scenario, mode);
    let is_calm = |run: &&Value| run["disturbances"] == Value::Array(Vec::new());
    let calm: Vec<&Value> = all.iter().filter(is_calm).collect();
    if calm.is_empty() {
        all.iter().collect()
    } else {
        calm
    }
}

#[test]
fn a_comparison_tells_what_changed() {
    let user = User::new();
    let found = faster(&benchmark(&user), 1);
    save(&user.file("a.json"), &found);
    let same = user.does("bench compare a.json a.json").text();
    assert!(
        same.contains("Same kernel, machine, disk and settings."),
        "{same}"
    );
    assert!(
        same.contains("Better (0)") && same.contains("Worse (0)"),
        "{same}"
    );
    let mut other = faster(&found, 1000);
    other["environment"]["kernel"] = "9.9".into();
    // Another version records another list of facts.
    let sysctls = other["environment"]["sysctls"].as_array_mut().unwrap();
    let sysctl = sysctls.remove(0);
    save(&user.file("b.json"), &other);
    let text = user.does("bench compare a.json b.json").text();
    let kernel = found["environment"]["kernel"].as_str().unwrap();
    let [name, value] = [0, 1].map(|place| sysctl[place].as_str().unwrap());
    let facts = format!("kernel: {kernel} → 9.9\n{name}: {value} → not recorded\n\nBetter");
    assert!(text.starts_with(&facts), "{text}");
    let back = user.does("bench compare b.json a.json").text();
    let fact = format!("\n{name}: not recorded → {value}\n");
    assert!(back.contains(&fact), "{back}");
    let better = text.split("Worse").next().unwrap();
    for mode in ["buffered", "dontcache", "direct"] {
        let line = format!("seq-write-1m {mode} writer");
        assert!(better.contains(&line), "{line}\n{text}");
    }
    assert!(text.contains("Worse (0)"), "{text}");
    // Large changes are factors with a noun, since percents of them say little.
    assert!(better.contains("1000× the speed"), "{text}");
    for percent in text
        .split(" %")
        .filter_map(|before| before.rsplit('+').next())
    {
        let percent: f64 = percent.parse().unwrap_or(0.0);
        assert!(percent <= 200.0, "{percent}");
    }
    let back = user.does("bench compare b.json a.json").text();
    assert!(back.contains("Better (0)"), "{back}");
}

#[test]
fn two_benchmarks_are_laid_over_each_other() {
    let user = User::new();
    let found = faster(&benchmark(&user), 1);
    save(&user.file("a.json"), &found);
    let mut other = faster(&found, 1000);
    other["environment"]["kernel"] = "<9.9>".into();
    save(&user.file("b.json"), &other);
    user.does("bench compare a.json b.json --html c.html");
    let html = std::fs::read_to_string(user.file("c.html")).unwrap();
    is_well_formed(&html);
    for part in [
        "<td>&lt;9.9&gt;</td>",
        "<section class=\"scenario\" id=\"append-log\"",
        "data-name=\"dontcache A\"",
        "data-name=\"dontcache B\"",
        ">buffered A</th>",
        "Nothing was lost beyond the noise",
        "1000× the speed, better",
        ">Faster.</strong> The writer moves",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("worse</td>"));
    // With itself nothing has changed.
    user.does("bench compare a.json a.json --html c.html");
    let html = std::fs::read_to_string(user.file("c.html")).unwrap();
    is_well_formed(&html);
    assert!(html.contains("Of all figures 0 are better, 0 worse, "));
    assert!(html.contains("Nothing was gained beyond the noise"));
    user.runs("bench compare a.json missing.json --html c.html")
        .fails(1, "missing.json");
}

#[test]
fn a_single_run_proves_nothing() {
    let user = User::new();
    user.does("bench seq-write-1m --size 2MiB --runs 1 --modes buffered,dontcache --json r.json");
    let found = results(&user.file("r.json"));
    save(&user.file("b.json"), &faster(&found, 1000));
    let text = user.does("bench compare r.json b.json").text();
    assert!(
        text.contains("Better (0)") && text.contains("use --runs"),
        "{text}"
    );
    let text = user.does("bench report r.json").text();
    assert!(text.contains("A single run proves nothing."), "{text}");
    user.does("bench report r.json --html r.html");
    let html = std::fs::read_to_string(user.file("r.html")).unwrap();
    assert!(html.contains("Every mode ran only once: all of this may be chance."));
}

#[test]
fn files_that_are_no_results_are_refused() {
    let user = User::new();
    user.has("noise", 1000);
    std::fs::write(user.file("empty.json"), "{}").unwrap();
    std::fs::write(user.file("old.json"), "{\"schema\":\"dropbehind-bench-0\"}").unwrap();
    std::fs::write(user.file("cut.json"), "{\"schema\":\"dropbehind-bench-1\"}").unwrap();
    user.runs("bench report missing.json")
        .fails(1, "missing.json");
    user.runs("bench report empty.json")
        .fails(1, "holds no results");
    user.runs("bench report old.json")
        .fails(1, "Use the dropbehind that wrote it");
    user.runs("bench compare cut.json cut.json")
        .fails(1, "is damaged");
    user.runs("bench report noise").fails(1, "noise");
}

/// In a browser, at the width of a phone and of a desk.
#[test]
fn a_browser_shows_it() {
    need!(Need::Tool("chromium"));
    let user = User::new();
    benchmark(&user);
    let html = std::fs::read_to_string(user.file("r.html")).unwrap();
    // The page says by itself how wide it is, with everything open.
    let probe = "<script>addEventListener('load', () => {\
        document.querySelectorAll('details').forEach(part => { part.open = true; });\
        const page = document.documentElement;\
        const hidden = [...document.querySelectorAll('polyline')]\
            .filter(line => getComputedStyle(line).display === 'none').length;\
        const buttons = [...document.querySelectorAll('button')].filter(one => !one.hidden).length;\
        parent.postMessage([innerWidth, page.scrollWidth, hidden, buttons].join(' '), '*');\
        });</script></body>";
    std::fs::write(user.file("probed.html"), html.replace("</body>", probe)).unwrap();
    for width in [360, 1280] {
        let host = format!(
            "<!DOCTYPE html><title>waits</title><iframe src=\"probed.html\" width=\"{width}\" \
             height=\"800\" style=\"border:0\"></iframe><script>\
             onmessage = message => {{ document.title = message.data; }};</script>"
        );
        let page = user.file("host.html");
        std::fs::write(&page, host).unwrap();
        let dom = chromium(&user, &["--dump-dom"], &page);
        let title = dom
            .split("<title>")
            .nth(1)
            .and_then(|rest| rest.split('<').next());
        let numbers: Vec<u32> = title
            .unwrap_or("")
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [inner, scroll, hidden, buttons] = numbers[..] else {
            panic!("{title:?}");
        };
        assert_eq!(inner, width);
        assert!(scroll <= width, "{scroll} pixels do not fit into {width}");
        // Lines of modes that are switched off at first, and working scripts.
        assert!(hidden > 0, "no line is hidden");
        assert!(buttons > 2, "{buttons}");
        let picture = user.file("picture.png");
        let option = format!("--screenshot={}", picture.display());
        let size = format!("--window-size={},900", width.max(500));
        chromium(&user, &[&option, &size], &user.file("r.html"));
        assert!(std::fs::metadata(&picture).unwrap().len() > 10_000);
    }
}

/// A reader's pointer, keys and words, and what the page makes of them.
const READER: &str = r#"<script>addEventListener('load', async () => {
const said = {};
const get = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const tip = () => get('#tip').hidden ? '' : get('#tip').innerText.replace(/\s+/g, ' ').trim();
const point = (element, type, x, y) => element.dispatchEvent(
    new PointerEvent(type, { clientX: x, clientY: y, bubbles: true, cancelable: true }));
const press = (element, key) => element.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
try {
    // How full the emptier column of the emptiest card is.
    said.fill = Math.min(...all('.flow').map(flow => {
        const { left, top, width } = flow.getBoundingClientRect();
        const ends = [top, top];
        for (const part of flow.children) {
            const box = part.getBoundingClientRect();
            const side = box.left < left + width / 4 ? 0 : 1;
            ends[side] = Math.max(ends[side], box.bottom);
        }
        return (Math.min(...ends) - top) / (Math.max(...ends) - top);
    }));
    // Sorting.
    const table = get('table.wide');
    get('details:has(> .scroll table.wide)').open = true;
    const column = index => [...table.tBodies[0].rows].map(row => row.cells[index].textContent);
    const sort = get('th:nth-child(2) .sort', table);
    said.unsorted = column(0);
    sort.click();
    said.up = column(1).map(parseFloat);
    sort.click();
    said.down = column(1).map(parseFloat);
    sort.click();
    said.back = column(0);
    // Filtering.
    const search = get('input[type=search]');
    const rows = all('table.metrics tbody tr', search.closest('.flow'));
    search.value = 'P99.9';
    search.dispatchEvent(new Event('input'));
    said.filtered = rows.filter(row => !row.hidden).map(row => row.cells[0].textContent);
    search.value = '';
    search.dispatchEvent(new Event('input'));
    said.unfiltered = rows.filter(row => !row.hidden).length === rows.length;
    // Values below the pointer, and by the keyboard.
    const chart = get('svg.chart[data-x=s]');
    const box = chart.getBoundingClientRect();
    const across = share => box.left + box.width * share;
    const middle = box.top + box.height / 2;
    const line = get('polyline[data-mode=dontcache]', chart);
    said.points = get('polyline[data-mode=native]', chart).getAttribute('points').split(' ');
    point(chart, 'pointermove', across(0.5), middle);
    said.hover = tip();
    point(chart, 'pointerleave', 0, 0);
    said.left = tip();
    press(chart, 'ArrowLeft');
    said.key = tip();
    // Zooming.
    const ticks = () => all('.ticks text', chart).map(text => text.textContent);
    said.ticks = ticks();
    const reset = get('figcaption button', chart.parentElement);
    point(chart, 'pointerdown', across(0.2), middle);
    point(window, 'pointermove', across(0.3), middle);
    point(window, 'pointerup', across(0.4), middle);
    said.zoomed = ticks();
    said.resettable = !reset.hidden;
    point(chart, 'pointermove', across(0.9), middle);
    said.hoverZoomed = tip();
    reset.click();
    said.reset = ticks();
    // Modes.
    const toggle = get('.legend input[value=dontcache]');
    said.shown = getComputedStyle(line).display;
    toggle.click();
    said.hidden = getComputedStyle(line).display;
    // Words.
    const term = get('table a.term[href="\u0023metric-p99"]');
    term.focus();
    said.term = tip();
    press(term, 'Escape');
    said.escaped = tip();
    said.glossary = get(term.getAttribute('href')).nextElementSibling.textContent;
} catch (error) { said.error = String(error); }
document.title = JSON.stringify(said);
});</script></body>"#;

#[test]
fn a_reader_gets_values_orders_and_words() {
    need!(Need::Tool("chromium"));
    let user = User::new();
    let results = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/results/2026-11-26-epyc-2cpu-small.json");
    std::fs::copy(results, user.file("r.json")).unwrap();
    user.does("bench report r.json --html r.html");
    let html = std::fs::read_to_string(user.file("r.html")).unwrap();
    let page = user.file("probed.html");
    std::fs::write(&page, html.replace("</body>", READER)).unwrap();
    let dom = chromium(&user, &["--dump-dom", "--window-size=1280,900"], &page);
    let title = dom
        .split("<title>")
        .nth(1)
        .and_then(|rest| rest.split("</title>").next());
    let said: Value = serde_json::from_str(&title.unwrap().replace("&amp;", "&")).unwrap();
    assert_eq!(said["error"], Value::Null, "{said}");
    let words = |key: &str| {
        said[key]
            .as_str()
            .unwrap_or_else(|| panic!("{key}: {said}"))
    };
    let numbers = |key: &str| -> Vec<f64> {
        let all = said[key].as_array().unwrap();
        all.iter().map(|one| one.as_f64().unwrap()).collect()
    };

    let fill = said["fill"].as_f64().unwrap();
    assert!(fill > 0.6, "half of a card is empty: {fill}");

    let (up, down) = (numbers("up"), numbers("down"));
    assert!(up.len() == 3 && up.is_sorted(), "{up:?}");
    assert!(down.iter().rev().eq(&up), "{up:?} {down:?}");
    assert_eq!(said["back"], said["unsorted"]);

    assert_eq!(said["filtered"], serde_json::json!(["p99.9 µs"]));
    assert_eq!(said["unfiltered"], true);

    // What it tells of the slowest mode is the point of its line that ends the step.
    let points: Vec<(f64, f64)> = said["points"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one.as_str()?.split_once(','))
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    let tells = |key: &str| -> f64 {
        let text = words(key);
        let told = text
            .split_once(" s buffered ")
            .and_then(|(at, rest)| Some((at, rest.split_once("native ")?.1)))
            .and_then(|(at, rest)| Some((at, rest.split_once(" MB/s dontcache ")?.0)));
        let (at, value) = told.unwrap_or_else(|| panic!("{text}"));
        let (at, value): (f64, f64) = (at.parse().unwrap(), value.parse().unwrap());
        let point = points.iter().find(|(x, _)| *x > at - 1e-6).unwrap();
        assert!((value / point.1 - 1.0).abs() < 0.01, "{text} {point:?}");
        at
    };
    let at = tells("hover");
    assert_eq!(words("left"), "");
    tells("key");

    let last = |key: &str| said[key].as_array().unwrap().len();
    assert!(
        last("zoomed") > 3 && said["zoomed"] != said["ticks"],
        "{said}"
    );
    assert_eq!(said["resettable"], true);
    assert!(tells("hoverZoomed") < at, "{said}");
    assert_eq!(said["reset"], said["ticks"]);

    assert_eq!((words("shown"), words("hidden")), ("inline", "none"));

    assert_eq!(
        words("term"),
        "99 % of the calls took at most this long; less is better"
    );
    assert_eq!(words("glossary"), words("term"));
    assert_eq!(words("escaped"), "");
}

fn chromium(user: &User, options: &[&str], page: &Path) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args([
            "--virtual-time-budget=20000",
            "--allow-file-access-from-files",
        ])
        .arg(format!(
            "--user-data-dir={}",
            user.file("profile").display()
        ))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
