//! Commands that start a watch, and the files that they are given.

use crate::user::User;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const RULES: &str =
    "[[rule]]\nname = \"all\"\npath = \"nowhere-of-this-name/**\"\nmode = \"dontcache\"\n";

impl User {
    /// A watch with just the privileges that the systemd unit gives it.
    pub(crate) fn watch_as_a_service(&self, args: &str) -> Command {
        let unit = packaged("dropbehind.service");
        let lines = unit.lines();
        let kept = lines
            .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="))
            .flat_map(str::split_whitespace)
            .filter_map(|name| name.strip_prefix("CAP_"))
            .map(|name| format!(",+{}", name.to_lowercase()));
        let kept: String = kept.collect();
        let wrapper = ["setpriv", "--no-new-privs", "--bounding-set"];
        let mut command = self.wrapped(&wrapper, &format!("-all{kept}"), &self.watch(args));
        command.stdin(Stdio::null());
        command
    }

    /// A command, started by another one.
    pub(crate) fn wrapped(&self, wrapper: &[&str], last: &str, inner: &Command) -> Command {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(last)
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(self.file(""));
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    pub(crate) fn writes(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }
}

pub(crate) fn packaged(name: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    std::fs::read_to_string(packaging.join(name)).unwrap()
}
