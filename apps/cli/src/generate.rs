//! `xk generate`: what belongs beside the program once it is installed.

use crate::failure::Failure;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Write manual pages and the completions of bash, zsh and fish, at their places below a folder
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder, such as /usr/local: pages and completions go below its `share`
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The place where each shell looks for completions, below a prefix.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/xk"),
    (Shell::Zsh, "share/zsh/site-functions/_xk"),
    (Shell::Fish, "share/fish/vendor_completions.d/xk.fish"),
];

pub(crate) fn main(args: &Args, mut command: Command) -> Result<(), Failure> {
    let mut files = 0;
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "xk", &mut text);
        write(&args.folder.join(path), &text)?;
        files += 1;
    }
    command.build();
    let pages = args.folder.join("share/man/man1");
    files += page(&pages, &command, "xk")?;
    for sub in command.get_subcommands() {
        files += page(&pages, sub, &format!("xk-{}", sub.get_name()))?;
    }
    output::print(&format!("{files} files below {}\n", args.folder.display()));
    Ok(())
}

fn page(folder: &Path, command: &Command, name: &str) -> Result<usize, Failure> {
    let mut text = Vec::new();
    let path = folder.join(format!("{name}.1"));
    // A page's name has no space, as `man` finds it.
    clap_mangen::Man::new(command.clone())
        .title(name)
        .render(&mut text)
        .map_err(|error| Failure::file("cannot write", &path, error))?;
    write(&path, &text)?;
    Ok(1)
}

fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .map_err(|error| Failure::file("cannot make the folder", folder, error))?;
    fs::write(path, text).map_err(|error| Failure::file("cannot write", path, error))
}
