//! From what a file means to Rust source that rustfmt leaves alone.

mod names;
mod program;
mod types;
mod write;

use crate::model::{Kind, Model, Type};
use names::Names;
use std::fmt::Write as _;

/// What is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the first line calls the file.
    pub file: String,
    /// Only types: no services and clients, and nothing of `xk_rpc`.
    pub types_only: bool,
    /// It goes where `include!` stands, which takes no attributes of a module; a file for `mod` has
    /// some.
    pub included: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { file: "the RPC language".into(), types_only: false, included: false }
    }
}

/// A program need not use all that a file offers; lints are for code by hand.
const ALLOWED: &str = "
#![allow(dead_code, unreachable_pub, clippy::all, reason = \"generated\")]
";

/// The Rust source: a module for `mod` or `include!`. It needs `xk-rpc`, or `xk-xdr` if it has
/// types alone.
pub fn to_rust(model: &Model, options: &Options) -> String {
    let mut rust = Rust {
        model,
        names: Names::new(model, !options.types_only),
        inexact: inexact(model),
        out: String::new(),
    };
    for constant in &model.constants {
        rust.constant(&constant.name, constant.value);
    }
    for at in 0..model.types.len() {
        rust.type_def(at);
    }
    if !options.types_only {
        for (at, program) in model.programs.iter().enumerate() {
            rust.program(at, program);
        }
    }
    rust.finish(options)
}

/// Which types hold floating-point numbers, which do not equal themselves always.
fn inexact(model: &Model) -> Vec<bool> {
    let mut inexact = vec![false; model.types.len()];
    let holds = |ty: &Type, known: &[bool]| {
        let mut ty = ty;
        loop {
            match ty {
                Type::Float | Type::Double => return true,
                Type::Fixed(inner, _) | Type::Array(inner, _) | Type::Optional(inner) => ty = inner,
                Type::Named(at) | Type::List(at) => {
                    return known.get(*at).copied().unwrap_or(false);
                }
                _ => return false,
            }
        }
    };
    loop {
        let mut changed = false;
        for (at, def) in model.types.iter().enumerate() {
            let now = match &def.kind {
                Kind::Alias(ty) => holds(ty, &inexact),
                Kind::Enum(_) => false,
                Kind::Struct { fields, .. } => fields.iter().any(|f| holds(&f.ty, &inexact)),
                Kind::Union(union) => {
                    let arms = union.arms.iter().filter_map(|arm| arm.field.as_ref());
                    let mut all = arms.chain(union.default.iter().flatten());
                    all.any(|field| holds(&field.ty, &inexact))
                }
            };
            changed |= now != std::mem::replace(&mut inexact[at], now);
        }
        if !changed {
            return inexact;
        }
    }
}

/// The source as far as it is written.
struct Rust<'a> {
    model: &'a Model,
    names: Names,
    inexact: Vec<bool>,
    out: String,
}

/// Octets of an array from which on it lies on the heap: the decoder's stack may be
/// small.
const INLINE_OCTETS_MAX: u64 = 256;

impl Rust<'_> {
    /// One line.
    fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// An item's first line: with an empty one before.
    fn item(&mut self, text: impl AsRef<str>) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.line(text);
    }

    fn constant(&mut self, name: &str, value: i128) {
        let ty = match value {
            v if u32::try_from(v).is_ok() => "u32",
            v if i32::try_from(v).is_ok() => "i32",
            v if i64::try_from(v).is_ok() => "i64",
            _ => "u64",
        };
        let rust = self.names.constant(name);
        self.item(format!("/// `{name}`."));
        self.line(format!("pub const {rust}: {ty} = {value};"));
    }

    /// How Rust calls a type.
    fn ty(&self, ty: &Type) -> String {
        let bounded = |name: &str, max: &u32| match max {
            &u32::MAX => format!("xdr::{name}"),
            max => format!("xdr::{name}<{max}>"),
        };
        match ty {
            Type::Void => "()".into(),
            Type::Int => "i32".into(),
            Type::Unsigned => "u32".into(),
            Type::Hyper => "i64".into(),
            Type::UnsignedHyper => "u64".into(),
            Type::Float => "f32".into(),
            Type::Double => "f64".into(),
            Type::Quadruple => "xdr::Quadruple".into(),
            Type::Bool => "bool".into(),
            Type::FixedOpaque(len) if u64::from(*len) > INLINE_OCTETS_MAX => {
                format!("Box<[u8; {len}]>")
            }
            Type::FixedOpaque(len) => format!("[u8; {len}]"),
            Type::Opaque(max) => bounded("Opaque", max),
            Type::Text(max) => bounded("Text", max),
            Type::Named(at) => self.names.ty(*at).into(),
            Type::Fixed(element, count) => {
                let array = format!("[{}; {count}]", self.ty(element));
                match self.model.octets_min(ty) > INLINE_OCTETS_MAX {
                    true => format!("Box<{array}>"),
                    false => array,
                }
            }
            Type::Array(element, u32::MAX) => format!("xdr::Array<{}>", self.ty(element)),
            Type::Array(element, max) => format!("xdr::Array<{}, {max}>", self.ty(element)),
            Type::Optional(value) => format!("Option<Box<{}>>", self.ty(value)),
            Type::List(at) => format!("xdr::List<{}>", self.names.ty(*at)),
        }
    }

    /// The whole file.
    fn finish(self, options: &Options) -> String {
        let body = self.out;
        let mut all =
            format!("// Made by `xk rpcgen` from {}: change that instead.\n", options.file);
        if !options.included {
            all.push_str(ALLOWED);
        }
        let uses_xdr = body.contains("xdr::");
        let uses_trait = body.contains("impl Xdr for");
        let calls = body.contains("impl<T: ");
        let root = if calls { "xk_rpc::xdr" } else { "xk_xdr" };
        let plain = if calls { "self" } else { "self as xdr" };
        let _ = match (uses_xdr, uses_trait) {
            (true, true) => writeln!(all, "\nuse {root}::{{{plain}, Xdr}};"),
            (true, false) if calls => writeln!(all, "\nuse {root};"),
            (true, false) => writeln!(all, "\nuse {root} as xdr;"),
            (false, _) => writeln!(all),
        };
        if calls {
            all.push_str("use xk_rpc::{Call, Client, Error, Refusal, Reply, Service};\n");
        }
        if uses_xdr || calls {
            all.push('\n');
        }
        all.push_str(&body);
        all
    }
}
