//! Texts that nobody would write.

use dropbehind_observer::rules::{Candidate, Rules};
use dropbehind_observer::rules_file::{RulesFile, RulesFileError};
use std::path::Path;

#[test]
fn any_file_is_explained_or_its_mistakes_are_told() {
    dropbehind_testbed::fuzz("tests/corpus/rules", |text| {
        let text = String::from_utf8_lossy(text);
        match RulesFile::parse(&text) {
            Ok(rules) => {
                let explained = rules.to_string();
                let numbered = format!("\n{}. ", rules.rule_count() + 1);
                assert!(!explained.contains(&numbered), "{explained}");
                let remarks = rules.remarks();
                let lines = explained.lines().chain(remarks.iter().map(String::as_str));
                for line in lines {
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
                rules.settings_for(Candidate {
                    path: Path::new("/srv/a.iso"),
                    name: None,
                    size_bytes: None,
                    process: 0,
                    disk: "sda",
                });
            }
            Err(problems) => {
                assert!(!problems.is_empty());
                let lines = text.split('\n').count();
                for problem in &problems {
                    assert!((1..=lines).contains(&problem.line), "{problem:?}");
                }
                let shown = RulesFileError::Wrong(vec![("rules".into(), problems)]).to_string();
                let escape = |c: char| c.is_control() && c != '\n';
                assert!(!shown.contains(escape), "{shown:?}");
            }
        }
    });
}
