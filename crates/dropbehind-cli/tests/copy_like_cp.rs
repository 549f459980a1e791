//! Command lines of cp, with plain cp and with ours under its name: the same files, the same
//! output, the same messages, the same exit code.

mod user;

use dropbehind_testbed::{Need, need};
use user::{Said, User};

/// What each script finds: files, links of both kinds, a tree, and some with attributes.
const PREPARE: &str = "umask 022
    echo one > a; echo two > b; echo old > old; touch -d 2001-01-01 old; touch -d 2030-01-01 new
    ln -s a link; ln -s nowhere dangling; ln a hard; mkfifo pipe
    mkdir -p tree/sub d; echo 1 > tree/f; ln tree/f tree/sub/same; ln -s f tree/l
    chmod 4750 tree/f; chown 1:2 tree/f; touch -d 2002-02-02T02:02:02.5 tree/f tree/sub
    setfattr -n user.x -v y tree/f; chmod 1777 tree/sub; echo there > d/a; mkdir d/b";

/// All there is of a folder.
const LIST: &str = r#"find . -mindepth 1 -printf '%p %y %m %U:%G %n %s %l\n' | sort
    find . -type f | sort | xargs -d '\n' head -c 100
    getfattr -R -d . 2>/dev/null; find . -newermt 2003-01-01 ! -newermt 2031-01-01 -prune -o -printf '%p %T@\n' | sort"#;

/// Runs a script where `cp` is one of both.
fn with(user: &User, which: &str, script: &str) -> (Said, String) {
    let path = match which {
        "ours" => {
            "mkdir -p ../bin; ln -sf \"$(which dropbehind)\" ../bin/cp; PATH=$PWD/../bin:$PATH"
        }
        _ => "PATH=/usr/bin:/bin",
    };
    let home = format!("rm -rf {which}; mkdir {which}; cd {which}; export LC_ALL=C");
    let said = user.sh(&format!("{home}; {path}\n{PREPARE}\n{script}"));
    let list = user.sh(&format!("cd {which}; {LIST}"));
    (said, list.text())
}

/// That both do the same.
#[track_caller]
fn alike(script: &str) {
    let user = User::new();
    let (plain, plain_list) = with(&user, "plain", script);
    let (ours, list) = with(&user, "ours", script);
    assert_eq!(list, plain_list, "{script}: {}", ours.stderr);
    let told = |said: &Said| (said.code, said.text(), said.stderr.clone());
    assert_eq!(told(&ours), told(&plain), "{script}");
}

#[test]
fn what_is_named_goes_where_it_goes_with_cp() {
    need!(Need::Root, Need::Tool("setfattr"));
    for script in [
        "cp a c",
        "cp a b d",
        "cp -t d old b",
        "cp -T a c",
        "cp -T a d",
        "cp -T tree d",
        "cp -RT tree d",
        "cp a b c",
        "cp a b nowhere/",
        "cp -t nowhere a",
        "cp tree c",
        "cp nothing c",
        "cp -r tree c; cp -r tree c",
        "cp -r tree/. c; cp -r tree/. c",
        "cp -r tree/ --strip-trailing-slashes c",
        "cp old old d",
        "cp -r tree tree d",
        "cp -R --parents tree/sub d; cp --parents tree/f d",
        "cp --parents tree/f c 2>/dev/null",
        "cp --parents tree/../tree/f d; cp -r --parents ./tree//sub/../sub d",
        "cp '' c; cp a ''; cp -r tree ''; cp -t '' a",
        "cp a a",
        "cp a hard",
        "cp link a",
    ] {
        alike(script);
    }
}

#[test]
fn links_and_special_files_become_what_they_become_with_cp() {
    need!(Need::Root, Need::Tool("setfattr"));
    for script in [
        "cp link c",
        "cp -P link dangling d",
        "cp -d link c",
        "cp -L link c",
        "cp -R tree c",
        "cp -RL tree c",
        "cp -RH link c; cp -RP link c2",
        "cp -R pipe c",
        "cp dangling c",
        "cp a dangling",
        "cp -f a dangling",
        "cp --remove-destination a dangling",
        "POSIXLY_CORRECT=1 cp a dangling",
        "cp -l a c; cp -l link c2; cp -lP link c3; cp -rl tree c4",
        "cp -l a b; cp -lf a b",
        "cp -s a c; cp -s /nowhere/b d/c; cp -s /bin/sh d/c; cp -s a d/x; cp -sf a b",
        "cp -ls a c",
        "cp --preserve=links a hard d",
        "mkdir e; cp -a a hard tree e; cp -a a hard tree e",
        "ln -s . tree/up; cp -RL tree c",
        "mkdir x; ln -s ../b x/a; cp -dR x/a b d 2>&1; cp -a x/. tree/. d",
    ] {
        alike(script);
    }
}

#[test]
fn attributes_are_kept_as_with_cp() {
    need!(Need::Root, Need::Tool("setfattr"), Need::Tool("setfacl"));
    for script in [
        "cp tree/f c",
        "cp -p tree/f c",
        "cp -a tree c",
        "cp -rp tree c",
        "cp --preserve=mode tree/f c",
        "cp --preserve=timestamps tree/f c",
        "cp --preserve=ownership tree/f c",
        "cp --preserve=xattr,links -r tree c",
        "cp --preserve tree/f c",
        "cp --preserve=all tree/f c",
        "cp -a --no-preserve=ownership tree c",
        "cp -a --no-preserve=xattr,timestamps tree c",
        "cp --no-preserve=xattr -a tree c",
        "cp --no-preserve=mode -r tree c; cp --no-preserve=mode tree/f c2",
        "cp --no-preserve=mode -p tree/f c",
        "cp --attributes-only -a tree c; cp --attributes-only -p tree/f a",
        "cp --preserve=context tree/f c 2>/dev/null",
        "cp --preserve=mo,own tree/f c",
        "cp -p tree/f old; cp -p tree/f hard",
        "setfattr -n user.p -v q tree tree/sub; mkdir -m 750 e; mv tree e; setfacl -m u:9:rx e
         cp -a --parents e/tree/sub d; cp -p --parents e/tree/f d; getfacl d/e",
        "setfattr -n user.p -v q tree; cp --preserve=xattr --parents tree/f d",
        "setfattr -n security.ima -v 0x0404 tree/f; cp -a tree/f c; getfattr -m ima c",
    ] {
        alike(script);
    }
}

#[test]
fn what_is_there_already_ends_as_with_cp() {
    need!(Need::Root, Need::Tool("setfattr"));
    for script in [
        "cp -n a old; cp -n a b c 2>/dev/null; cp -n a c",
        "cp -u old a; cp -u new a; cp -u a old",
        "cp -uv old new a d",
        "echo n | cp -i a b; echo y | cp -i a b",
        "cp -in a b; yes | cp -ni a b; yes n | cp -nfi a b",
        "cp -b a b; cp -b a b; cp --backup=numbered a b; cp -b a b; cp --backup=simple a b",
        "cp --backup=t -v a b; cp -S .bak a b; cp --backup=off a b",
        "VERSION_CONTROL=numbered SIMPLE_BACKUP_SUFFIX=.x cp -b a b",
        "SIMPLE_BACKUP_SUFFIX=.x cp -b a b",
        "cp -bf a a; cp -b a a",
        "cp -bn a b 2>/dev/null",
        "cp -rb tree c; cp -rb tree c; cp -rbT tree c",
        "cp --remove-destination a hard; cp -v --remove-destination b old",
        "chmod 0 b; cp a b; cp -f a b",
        "chmod 0 b; setpriv --reuid=65534 --clear-groups cp a b -f",
        "cp a d/b; cp tree/f d; cp a d",
        "cp -R tree a",
        "mkdir x; echo 3 > x/a; cp a x/a d; cp -v b x d",
        "cp -v a c; cp -rv tree c2 | sort; cp -v --parents tree/f d >/dev/null",
    ] {
        alike(script);
    }
}

#[test]
fn holes_are_made_and_filled_as_with_cp() {
    need!(Need::Root, Need::Tool("setfattr"));
    let make = "truncate -s 3M s; printf x | dd of=s bs=1 seek=1M conv=notrunc status=none
        head -c 1M /dev/zero > z; printf y >> z; head -c 1M /dev/zero > end";
    let used = "for f in c*; do echo $f $(($(stat -c %b $f) / 128)); done";
    for script in [
        "cp s c; cp z c2",
        "cp --sparse=always s c; cp --sparse=always z c2; cp --sparse=always end c3",
        "cp --sparse=never s c",
        "cat z | cp --sparse=always /dev/stdin c",
        "cp --reflink=always s c 2>/dev/null; rm -f c; cp --reflink=never s c; cp --reflink=auto s c2",
        "cp --reflink=always --sparse=always s c 2>/dev/null",
    ] {
        alike(&format!("{make}\nsync s z end; {script}\nsync; {used}"));
    }
}

/// As on a stick, whose times are coarser than those of the source.
#[test]
fn a_copy_with_coarser_times_is_not_older() {
    need!(
        Need::Root,
        Need::Filesystem("ext4"),
        Need::Tool("setfattr"),
        Need::Tool("mkfs.ext4")
    );
    for options in ["-au", "-pu"] {
        // Whoever looks at files on all disks may keep this one busy for a moment.
        alike(&format!(
            "PATH=$PATH:/usr/sbin:/sbin; truncate -s 8M image; mkfs.ext4 -q -F -I 128 image 2>/dev/null
             mkdir disk; mount -o loop image disk; cp {options} tree/f a disk
             cp {options} -v tree/f a disk; touch tree/f; cp {options} -v tree/f a disk
             umount -l disk; rm -r image disk"
        ));
    }
}
