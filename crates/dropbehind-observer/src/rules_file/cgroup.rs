//! Which control groups (cgroups(7)) and systemd units a process is in.

use std::path::Path;

use dropbehind_linux::processes::Cgroup;

use super::patterns::Patterns;

/// A group's path in its hierarchy. It stays the same if the group was removed with a process
/// still in it.
fn path(group: &Cgroup) -> &str {
    let path = group.path.to_str().unwrap_or_default();
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Returns whether the group, or one that contains it, matches.
pub(super) fn is_within(group: &Cgroup, groups: &Patterns) -> bool {
    let mut ancestors = Path::new(path(group)).ancestors();
    ancestors.any(|group| groups.matches(group))
}

/// systemd keeps its units in the unified hierarchy, in one of its own, or in both.
fn has_units(group: &Cgroup) -> bool {
    matches!(&*group.controllers, "" | "name=systemd")
}

/// The units of the system that a group's path begins with: slices, and one in them. The rest of
/// the path comes second: groups below a unit are made by its processes, as by the service manager
/// of a user, and may have any name.
fn split_units(path: &str) -> (Vec<&str>, Vec<&str>) {
    let mut units: Vec<&str> = path.split('/').skip(1).collect();
    let slices = units.iter().take_while(|part| part.ends_with(".slice"));
    let slices = slices.count();
    let has_other = units.get(slices).is_some_and(|part| is_unit(part));
    let below = units.split_off(slices + usize::from(has_other));
    (units, below)
}

fn is_unit(name: &str) -> bool {
    WITH_PROCESSES.iter().any(|kind| name.ends_with(kind))
}

/// Returns whether the group belongs to such a unit of the system. A service is in its slices, too.
pub(super) fn is_of_unit(group: &Cgroup, wanted: &Patterns) -> bool {
    let (units, _) = split_units(path(group));
    has_units(group) && units.iter().any(|unit| wanted.matches(unit))
}

/// The longest name of a unit, or end of a group's path, that is shown: `NAME_MAX`.
const SHOWN_BYTES: usize = 255;

/// The unit of a process in these groups, if it is the system's. Otherwise the path of its group,
/// cut at the front to [`SHOWN_BYTES`]; empty for the root. Where a group below the unit is named
/// like one, that is shown with its whole path.
pub(crate) fn unit_or_group(groups: &[Cgroup]) -> String {
    let paths = || groups.iter().filter(|group| has_units(group)).map(path);
    let mut units = paths().filter_map(|path| {
        let (units, below) = split_units(path);
        let unit = units.last().filter(|unit| !unit.ends_with(".slice"))?;
        (!below.iter().any(|part| is_unit(part))).then_some(*unit)
    });
    let group = || paths().find(|path| *path != "/").unwrap_or_default();
    let shown = units.next().unwrap_or_else(group);
    let mut start = shown.len().saturating_sub(SHOWN_BYTES);
    while !shown.is_char_boundary(start) {
        start += 1;
    }
    shown[start..].to_owned()
}

/// The kinds of unit that have processes, and therefore a group.
const WITH_PROCESSES: [&str; 6] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];
/// The other kinds.
const WITHOUT_PROCESSES: [&str; 5] = [".timer", ".target", ".path", ".device", ".automount"];

/// A unit's full name; a short one is completed as by systemctl(1).
pub(super) fn full_unit_name(text: &str) -> Result<String, String> {
    if let Some(kind) = WITHOUT_PROCESSES.iter().find(|kind| text.ends_with(**kind)) {
        return Err(format!(
            "{text:?} matches nothing: a {} has no processes; name a unit that has: {}",
            &kind[1..],
            WITH_PROCESSES.join(", ")
        ));
    }
    if text.contains('/') {
        return Err(format!(
            "{text:?} is no name of a unit; write cgroup = {text:?} for a path of groups"
        ));
    }
    let whole = WITH_PROCESSES.iter().any(|kind| text.ends_with(kind));
    if whole || text.contains(['*', '?', '[', '{']) {
        return Ok(text.to_owned());
    }
    Ok(format!("{text}.service"))
}

#[cfg(test)]
mod tests {
    use super::super::patterns::{path_glob, unit_glob};
    use super::*;

    const VERSION_2: &str =
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-a\\x2db.scope\n";
    const HYBRID: &str = "12:memory:/limited/inner\n\
                          1:name=systemd:/system.slice/backup.service\n\
                          0::/system.slice/backup.service\n";

    /// Lines as in `/proc/PID/cgroup`.
    fn parse(text: &str) -> Vec<Cgroup> {
        let groups = text.lines().map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Cgroup {
                controllers: fields.next().unwrap().to_owned(),
                path: fields.next().unwrap().into(),
            }
        });
        groups.collect()
    }

    fn units(names: &[&str]) -> Patterns {
        let globs = names.iter().map(|name| unit_glob(name).unwrap()).collect();
        Patterns::new(Vec::new(), globs)
    }

    fn groups(paths: &[&str]) -> Patterns {
        let globs = paths.iter().map(|path| path_glob(path).unwrap()).collect();
        Patterns::new(Vec::new(), globs)
    }

    fn of_unit(text: &str, unit: &str) -> bool {
        let units = units(&[unit]);
        parse(text).iter().any(|group| is_of_unit(group, &units))
    }

    fn within(text: &str, group: &str) -> bool {
        let groups = groups(&[group]);
        parse(text).iter().any(|group| is_within(group, &groups))
    }

    #[test]
    fn a_unit_is_in_systemds_slices() {
        for unit in ["user@1000.service", "user-*.slice", "user.slice"] {
            assert!(of_unit(VERSION_2, unit), "{unit}");
        }
        assert!(!of_unit(VERSION_2, "user"));
        assert!(of_unit(HYBRID, "backup.service"));
        assert!(of_unit("0::/init.scope\n", "init.scope"));
        assert!(of_unit(
            "0::/system.slice/a.service (deleted)\n",
            "a.service"
        ));
        assert!(of_unit(
            "0::/a-b.slice/a-b-c.slice/x\\x2dy.service\n",
            "x\\x2dy.service"
        ));
        // This hierarchy is not systemd's.
        assert!(!of_unit(HYBRID, "limited"));
        assert!(!of_unit("3:cpu:/x.service\n", "x.service"));
    }

    /// Users may make groups of any name below their own service manager, and so may whoever runs
    /// a service or a container to which its group was delegated.
    #[test]
    fn groups_that_others_may_make_are_no_units() {
        for group in [
            "/user.slice/user-1000.slice/user@1000.service/backup.service",
            "/user.slice/user-1000.slice/user@1000.service/system.slice/backup.service",
            "/system.slice/docker-1.scope/backup.service",
            "/system.slice/a.service/inner/system.slice/backup.service",
            "/lxc/one/system.slice/backup.service",
            "/../system.slice/backup.service",
        ] {
            assert!(
                !of_unit(&format!("0::{group}\n"), "backup.service"),
                "{group}"
            );
        }
        assert!(!of_unit(VERSION_2, "app.slice"));
        assert!(!of_unit(VERSION_2, "app-a\\x2db.scope"));
        assert!(within(VERSION_2, "/user.slice/**/app-*.scope"));
    }

    #[test]
    fn the_unit_is_shown_or_the_group() {
        let users = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-a\\x2db.scope";
        for (groups, shown) in [
            (VERSION_2, users),
            (HYBRID, "backup.service"),
            (
                "0::/user.slice/user-7.slice/session-3.scope\n",
                "session-3.scope",
            ),
            // Whoever may make groups there chose these names.
            (
                "0::/system.slice/a.service/b.service\n",
                "/system.slice/a.service/b.service",
            ),
            ("0::/mine/b.service\n", "/mine/b.service"),
            ("0::/../b.service\n", "/../b.service"),
            ("0::/system.slice/a.service/inner\n", "a.service"),
            ("0::/user.slice\n", "/user.slice"),
            ("0::/init.scope\n", "init.scope"),
            ("0::/lxc/one (deleted)\n", "/lxc/one"),
            ("3:cpu:/x.service\n0::/\n", ""),
            ("", ""),
        ] {
            assert_eq!(unit_or_group(&parse(groups)), shown, "{groups}");
        }
        let long = format!("0::/{}x.service\n", "\u{e9}".repeat(2000));
        assert!(unit_or_group(&parse(&long)).len() <= SHOWN_BYTES);
    }

    #[test]
    fn a_group_covers_what_is_below_it() {
        assert!(within(HYBRID, "/limited"));
        assert!(within(HYBRID, "/limited/inner"));
        assert!(within(HYBRID, "/system.slice/*"));
        assert!(!within(HYBRID, "/limited/other"));
        assert!(!within(HYBRID, "/inner"));
        assert!(within(VERSION_2, "/user.slice/*/user@*.service"));
    }

    #[test]
    fn odd_paths_do_no_harm() {
        assert!(within("0::/gone (deleted)\n", "/gone"));
        assert!(within("0::/with:colon\n", "/with:colon"));
    }

    #[test]
    fn short_names_of_units_are_services() {
        assert_eq!(full_unit_name("nginx").as_deref(), Ok("nginx.service"));
        assert_eq!(
            full_unit_name("getty@tty1").as_deref(),
            Ok("getty@tty1.service")
        );
        assert_eq!(full_unit_name("user.slice").as_deref(), Ok("user.slice"));
        assert_eq!(full_unit_name("back*").as_deref(), Ok("back*"));
        assert!(
            full_unit_name("backup.timer")
                .unwrap_err()
                .contains("timer")
        );
        assert!(
            full_unit_name("/system.slice")
                .unwrap_err()
                .contains("cgroup")
        );
    }
}
