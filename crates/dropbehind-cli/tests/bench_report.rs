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
        "<h2 id=\"verdicts\">",
        "<section class=\"scenario\" id=\"append-log\"",
        "prefers-color-scheme: dark",
        "name=\"viewport\"",
        "O_DIRECT cannot write records",
        "<polyline",
        "Latency of the server&#39;s calls",
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
    hostile["scenarios"][0]["summary"] = "<img src=\"x\" onerror='y'>&amp;".into();
    save(&user.file("hostile.json"), &hostile);
    user.does("bench report hostile.json --html hostile.html");
    let html = std::fs::read_to_string(user.file("hostile.html")).unwrap();
    is_well_formed(&html);
    assert!(!html.contains("<script>alert") && !html.contains("<img"));
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
    save(&user.file("b.json"), &other);
    let text = user.does("bench compare a.json b.json").text();
    let kernel = found["environment"]["kernel"].as_str().unwrap();
    assert!(text.contains(&format!("kernel: {kernel} → 9.9")), "{text}");
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
            .filter(line => line.style.display === 'none').length;\
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
        assert_eq!(buttons, 2);
        let picture = user.file("picture.png");
        let option = format!("--screenshot={}", picture.display());
        let size = format!("--window-size={},900", width.max(500));
        chromium(&user, &[&option, &size], &user.file("r.html"));
        assert!(std::fs::metadata(&picture).unwrap().len() > 10_000);
    }
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
