//! `xk rpcgen`: Rust from a file of the RPC language.

use crate::failure::{Failure, show};
use crate::output;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use xk_rpcgen::{Compiled, Options, SOURCE_OCTETS_MAX, compile, to_rust};

/// Compile a file of the RPC language (RFC 5531, section 12) to Rust: types, a trait and a server
/// for each version of a program, and a client
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file, usually called `NAME.x`; `-` for the standard input
    #[arg(value_name = "FILE.x")]
    file: PathBuf,
    /// File for the Rust code; the standard output if not given
    #[arg(long, value_name = "FILE.rs", conflicts_with = "check")]
    out: Option<PathBuf>,
    /// Only report the mistakes of the file
    #[arg(long)]
    check: bool,
    /// Only types: the Rust code then needs only `xk-xdr`
    #[arg(long)]
    types_only: bool,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let Compiled { model, warnings } = load(&args.file)?;
    show(&warnings);
    if args.check {
        let versions = model.programs.iter().map(|p| p.versions.len());
        output::print(&format!(
            "{}: ok, {} types, {} constants, {} programs in {} versions\n",
            args.file.display(),
            model.types.len(),
            model.constants.len(),
            model.programs.len(),
            versions.sum::<usize>(),
        ));
        return Ok(());
    }
    let name = args.file.file_name().unwrap_or(args.file.as_os_str());
    let options = Options {
        file: match name.to_str() {
            Some("-") | None => "the standard input".into(),
            Some(name) => name.escape_debug().to_string(),
        },
        types_only: args.types_only,
        included: false,
    };
    let rust = to_rust(&model, &options);
    match &args.out {
        None => output::print(&rust),
        Some(path) => std::fs::write(path, rust)
            .map_err(|error| Failure::file("cannot write", path, error))?,
    }
    Ok(())
}

/// Reads and compiles a file.
pub(crate) fn load(path: &Path) -> Result<Compiled, Failure> {
    let failed = |error| Failure::file("cannot read", path, error);
    // One octet more than allowed, so that the compiler says that it is too long.
    let limit = SOURCE_OCTETS_MAX as u64 + 1;
    let mut octets = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_end(&mut octets).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(limit).read_to_end(&mut octets).map_err(failed)?;
    }
    // Comments of old files are in other character sets.
    let text = String::from_utf8_lossy(&octets);
    Ok(compile(&path.display().to_string(), &text)?)
}
