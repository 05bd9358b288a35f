//! Checks the graph files it is given, as `xk check` does, in plain text.

use std::process::ExitCode;

fn main() -> ExitCode {
    let catalog = xk_catalog::Catalog::standard();
    let mut failed = false;
    for file in std::env::args().skip(1) {
        let source = match std::fs::read_to_string(&file) {
            Ok(source) => source,
            Err(error) => {
                eprintln!("{file}: {error}");
                failed = true;
                continue;
            }
        };
        match xk_compose::check(&source, &file, &catalog) {
            Ok(graph) => print!("{}", graph.warnings()),
            Err(mistakes) => {
                print!("{mistakes}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
