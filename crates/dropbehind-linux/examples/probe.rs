//! Prints what works for the paths given, or for the current directory.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() {
        paths.push(".".into());
    }
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        let path = Path::new(&path);
        match dropbehind_linux::probe(path) {
            Ok(found) => println!("{}: {found:#?}", path.display()),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
