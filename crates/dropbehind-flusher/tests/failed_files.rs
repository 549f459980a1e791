//! Which files count as failed. The process remembers it as long as it lives, so this has one of its
//! own.

use std::fs::File;
use std::os::fd::AsFd;

use dropbehind_flusher::{remember_failure, remembers_failure};
use dropbehind_testbed::Scratch;

#[test]
fn once_too_many_files_have_failed_all_count_as_failed() {
    let scratch = Scratch::new().unwrap();
    let other = File::create(scratch.file("other")).unwrap();
    let mut failed = 0;
    while !remembers_failure(other.as_fd()) {
        let file = File::create(scratch.file(&failed.to_string())).unwrap();
        assert!(!remembers_failure(file.as_fd()), "{failed}");
        remember_failure(file.as_fd());
        assert!(remembers_failure(file.as_fd()), "{failed}");
        failed += 1;
        assert!(failed < 10_000);
    }
    assert!(failed > 1000, "{failed}");
    for number in 0..failed {
        let file = File::open(scratch.file(&number.to_string())).unwrap();
        assert!(remembers_failure(file.as_fd()), "{number}");
    }
}
