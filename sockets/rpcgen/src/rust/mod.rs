//! Makes Rust source from a file's model; `prettyplease` lays it out.

mod names;
mod program;
mod types;

use crate::model::{Kind, Model, Type};
use names::Names;

/// Options for what is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the file in the first line.
    pub file: String,
    /// Only types: no services and clients, and nothing of `xk_rpc`.
    pub types_only: bool,
    /// True if it goes where `include!` stands, which takes no attributes of a module; a file for
    /// `mod` has some.
    pub included: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { file: "the RPC language".into(), types_only: false, included: false }
    }
}

/// A program need not use all that a file offers; lints are for code by hand.
const ALLOWED: &str =
    "#![allow(dead_code, unreachable_pub, clippy::all, reason = \"generated\")]\n";

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

/// Types with floating-point numbers, which do not always equal themselves.
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
    fn constant(&mut self, name: &str, value: i128) {
        let ty = match value {
            v if u32::try_from(v).is_ok() => "u32",
            v if i32::try_from(v).is_ok() => "i32",
            v if i64::try_from(v).is_ok() => "i64",
            _ => "u64",
        };
        let rust = self.names.constant(name);
        self.out += &format!("/// `{name}`.\npub const {rust}: {ty} = {value};\n");
    }

    /// Name of a type in Rust.
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
        let calls = body.contains("impl<T: ");
        let (root, plain) = match calls {
            true => ("xk_rpc::xdr", "self"),
            false => ("xk_xdr", "self as xdr"),
        };
        let mut all = if options.included { String::new() } else { ALLOWED.to_owned() };
        all += &match (body.contains("xdr::"), body.contains("impl Xdr for")) {
            (true, true) => format!("use {root}::{{{plain}, Xdr}};\n"),
            (true, false) if calls => format!("use {root};\n"),
            (true, false) => format!("use {root} as xdr;\n"),
            (false, _) => String::new(),
        };
        if calls {
            all += "use xk_rpc::{Call, Client, Error, Refusal, Reply, Service};\n";
        }
        all += &body;
        let first = format!("// Made by `xk rpcgen` from {}: change that instead.\n", options.file);
        match syn::parse_file(&all) {
            Ok(file) => first + &spaced(&prettyplease::unparse(&file)),
            // Only a mistake of this crate's can bring it here; rustc says which.
            Err(_) => first + &all,
        }
    }
}

/// The source with an empty line between items, and between the functions of one.
fn spaced(source: &str) -> String {
    let mut all = String::from("\n");
    let mut last = "";
    for line in source.lines() {
        let is_end = line.trim_start().starts_with('}');
        let ends_item = last == "}" || last == "    }" && line.starts_with("    ");
        let is_item = line.starts_with("///") || line.starts_with("impl");
        let begins_item = is_item && last.ends_with([';', ']']);
        let begins_uses = line.starts_with("use ") && !last.starts_with("use ");
        let splits = !is_end && ends_item || begins_item || begins_uses;
        if splits && !last.is_empty() {
            all.push('\n');
        }
        all.push_str(line);
        all.push('\n');
        last = line;
    }
    all
}
