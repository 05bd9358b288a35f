//! For build scripts.

use crate::{Compiled, Options, compile, to_rust};
use std::fmt;
use std::path::{Path, PathBuf};
use xk_lang::Diagnostics;

/// Why a build script's file did not become Rust. As text, and so as what a build script's `main`
/// answers, it is what a person reads.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Compiles a file of the RPC language from a build script, to a file of the same name with `.rs`
/// in cargo's `OUT_DIR`:
///
/// ```no_run
/// // build.rs, with xk-rpcgen among the build dependencies
/// fn main() -> Result<(), xk_rpcgen::BuildError> {
///     xk_rpcgen::build("greeter.x")
/// }
/// ```
///
/// The program takes it in where it wants its types: `mod greeter {
/// include!(concat!(env!("OUT_DIR"), "/greeter.rs")); }`.
///
/// # Errors
/// The mistakes of the file with their places, or what cannot be read or written.
pub fn build(file: impl AsRef<Path>) -> Result<(), BuildError> {
    let folder = std::env::var_os("OUT_DIR");
    let folder = folder.ok_or_else(|| {
        BuildError("OUT_DIR is not set: call this from a build script, or run `xk rpcgen`".into())
    })?;
    let file = file.as_ref();
    println!("cargo::rerun-if-changed={}", file.display());
    let (_, warnings) = build_to(file, folder)?;
    for warning in warnings.sorted() {
        println!("cargo::warning={}: {}", file.display(), warning.what);
    }
    Ok(())
}

/// Writes into this folder; answers where the Rust lies, and what was left out.
///
/// # Errors
/// As for [`build`].
pub fn build_to(
    file: impl AsRef<Path>,
    folder: impl AsRef<Path>,
) -> Result<(PathBuf, Diagnostics), BuildError> {
    let file = file.as_ref();
    let failed = |path: &Path, error| BuildError(format!("{}: {error}", path.display()));
    let octets = std::fs::read(file).map_err(|error| failed(file, error))?;
    let text = String::from_utf8_lossy(&octets);
    let compiled = compile(&file.display().to_string(), &text);
    let Compiled { model, warnings } = compiled.map_err(|found| BuildError(found.to_text()))?;
    let name = file.file_stem().unwrap_or(file.as_os_str());
    let options = Options {
        file: file.display().to_string().escape_debug().to_string(),
        types_only: false,
        included: true,
    };
    let out = folder.as_ref().join(name).with_extension("rs");
    std::fs::write(&out, to_rust(&model, &options)).map_err(|error| failed(&out, error))?;
    Ok((out, warnings))
}
