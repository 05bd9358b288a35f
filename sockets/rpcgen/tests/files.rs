//! Whole files: those of this folder, and those that the system has.

use std::path::{Path, PathBuf};
use xk_rpcgen::{Options, compile, to_rust};

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut all: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "x")).collect();
    all.sort();
    all
}

/// The file compiles, and what is made of it is Rust.
fn check(path: &Path) {
    let octets = std::fs::read(path).expect("a file");
    let text = String::from_utf8_lossy(&octets);
    let name = path.file_name().expect("a name").to_string_lossy();
    let compiled = match compile(&name, &text) {
        Ok(compiled) => compiled,
        Err(found) => {
            // The system's files lean on headers of C here and there; that they say so is all that
            // can be asked.
            let leans = |what: &str| {
                what.starts_with("no constant") || what.contains("nothing else defines")
            };
            let errors = found.sorted().into_iter();
            let mut errors = errors.filter(|d| d.severity == xk_lang::Severity::Error);
            let excused = path.starts_with("/usr") && errors.all(|d| leans(&d.what));
            assert!(excused, "{}", found.to_text());
            return;
        }
    };
    for types_only in [false, true] {
        let options = Options { file: name.clone().into_owned(), types_only, included: false };
        let rust = to_rust(&compiled.model, &options);
        assert!(syn::parse_file(&rust).is_ok(), "{name} became no Rust: {rust}");
    }
}

#[test]
fn files_of_this_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/x");
    let files = files_of(&folder);
    assert!(files.len() >= 4);
    files.iter().for_each(|path| check(path));
}

/// Code that a build script generates from a file.
#[test]
fn a_build_script_has_it_written() {
    let folder = std::env::temp_dir().join(format!("xk-rpcgen-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let good = folder.join("good.x");
    std::fs::write(&good, "%C\nstruct pair { int a; int b; };").expect("written");
    let (out, warnings) = xk_rpcgen::build_to(&good, &folder).expect("no mistakes");
    assert_eq!(out, folder.join("good.rs"));
    assert_eq!(warnings.sorted().len(), 1);
    let rust = std::fs::read_to_string(&out).expect("read");
    assert!(rust.contains("pub struct Pair {"), "{rust}");
    // What `include!` does not take.
    assert!(!rust.contains("#!["), "{rust}");
    let bad = folder.join("bad.x");
    std::fs::write(&bad, "struct pair { integer a; };").expect("written");
    let error = xk_rpcgen::build_to(&bad, &folder).expect_err("a mistake");
    assert!(error.to_string().contains("bad.x:1:15: error"), "{error}");
    let error = xk_rpcgen::build_to(folder.join("none.x"), &folder).expect_err("no file");
    assert!(error.to_string().contains("none.x: "), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Files of Debian's packages rpcsvc-proto and libtirpc-dev, where they are installed.
#[test]
fn files_of_the_system() {
    for folder in ["/usr/include/rpcsvc", "/usr/include/tirpc/rpcsvc", "/usr/include/tirpc/rpc"] {
        for path in files_of(Path::new(folder)) {
            check(&path);
        }
    }
}
