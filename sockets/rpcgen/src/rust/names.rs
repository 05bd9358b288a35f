//! Names as Rust has them, each once.

use crate::model::Model;
use std::collections::{HashMap, HashSet};

/// Names that generated code uses itself.
const TAKEN: &str = "Box Call Client Clone Copy Debug Eq Err Error Hash None Ok Option PartialEq \
                     Refusal Reply Result Self Send Service Some String Vec Xdr T S";

/// Modules of these names would hide what generated code means: crates, a module and the types that
/// Rust has itself.
const MODULES_TAKEN: &str = "xdr xk_rpc xk_xdr bool f32 f64 i32 i64 u32 u64 u8";

/// Names that cannot even be raw ones.
const NEVER: &[&str] = &["crate", "self", "super", "Self", "_"];

/// Names of one scope.
#[derive(Debug, Default)]
pub(super) struct Scope(HashSet<String>);

impl Scope {
    /// A scope in which these names, with spaces between, are taken.
    pub(super) fn of(taken: &str) -> Self {
        Self(taken.split(' ').map(str::to_owned).collect())
    }

    /// This name, or one like it that is not taken.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let more = (2..).map(|count| format!("{}_{count}", name.trim_end_matches('_')));
        self.first([name.to_owned()].into_iter().chain(more))
    }

    /// A type's name, which has no `_`.
    pub(super) fn unique_type(&mut self, name: &str) -> String {
        let more = (2..).map(|count| format!("{name}Type{count}"));
        let all = [name.to_owned(), format!("{name}Type")].into_iter().chain(more);
        self.first(all)
    }

    /// The first that is not taken, which is from now on.
    fn first(&mut self, mut all: impl Iterator<Item = String>) -> String {
        let found = all.find(|name| self.0.insert(name.clone()));
        found.unwrap_or_default()
    }
}

/// The names of a file.
pub(super) struct Names {
    types: Vec<String>,
    constants: HashMap<String, String>,
    /// Names of programs, in their order: the constant, and of each version the trait and the
    /// module.
    programs: Vec<ProgramNames>,
}

pub(super) struct ProgramNames {
    pub(super) constant: String,
    pub(super) versions: Vec<VersionNames>,
}

#[derive(Clone)]
pub(super) struct VersionNames {
    pub(super) service: String,
    pub(super) server: String,
    pub(super) client: String,
    pub(super) module: String,
}

impl Names {
    pub(super) fn new(model: &Model, programs: bool) -> Self {
        let mut types = Scope::of(TAKEN);
        let all = model.types.iter();
        let mut names = Self {
            types: all.map(|def| types.unique_type(&camel(&def.name))).collect(),
            constants: HashMap::new(),
            programs: Vec::new(),
        };
        let mut constants = Scope::default();
        for constant in &model.constants {
            let rust = constants.unique(&constant.name.to_uppercase());
            names.constants.insert(constant.name.clone(), rust);
        }
        if !programs {
            return names;
        }
        let mut modules = Scope::of(MODULES_TAKEN);
        for program in &model.programs {
            let versions = program.versions.iter().map(|version| {
                let service = types.unique_type(&camel(&version.name));
                VersionNames {
                    server: types.unique_type(&format!("{service}Server")),
                    client: types.unique_type(&format!("{service}Client")),
                    service,
                    module: modules.unique(&snake(&version.name)),
                }
            });
            names.programs.push(ProgramNames {
                versions: versions.collect(),
                constant: constants.unique(&program.name.to_uppercase()),
            });
        }
        names
    }

    pub(super) fn ty(&self, at: usize) -> &str {
        self.types.get(at).map_or("()", String::as_str)
    }

    pub(super) fn constant(&self, name: &str) -> String {
        let rust = self.constants.get(name);
        rust.cloned().unwrap_or_else(|| name.to_uppercase())
    }

    pub(super) fn program(&self, at: usize) -> Option<&ProgramNames> {
        self.programs.get(at)
    }
}

/// `NFS3_OK` as `Nfs3Ok`, `READ3args` as `Read3args`, `nameLen` as `NameLen`.
pub(super) fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut start = true;
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            // Digits on both sides would run together.
            start = true;
            continue;
        }
        if start {
            let joins = out.ends_with(|c: char| c.is_ascii_digit()) && letter.is_ascii_digit();
            if joins {
                out.push('V');
            }
            out.push(letter.to_ascii_uppercase());
        } else if upper {
            out.push(letter.to_ascii_lowercase());
        } else {
            out.push(letter);
        }
        upper = letter.is_ascii_uppercase();
        start = false;
    }
    match out.chars().next() {
        None => "Type".into(),
        Some(first) if first.is_ascii_digit() => format!("N{out}"),
        Some(_) if out == "Self" => "SelfType".into(),
        Some(_) => out,
    }
}

/// `nameLen` as `name_len`; words that Rust has taken get `r#` in front.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && lower {
            out.push('_');
        }
        lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if letter == '_' && (out.is_empty() || out.ends_with('_')) {
            continue;
        }
        out.push(letter.to_ascii_lowercase());
    }
    let trimmed = out.trim_end_matches('_');
    if NEVER.contains(&trimmed) {
        return format!("{trimmed}_");
    }
    match trimmed.chars().next() {
        None => "field".into(),
        Some(first) if first.is_ascii_digit() => format!("n{trimmed}"),
        // A word of Rust's is none (`gen` is one since the edition of 2024).
        Some(_) if syn::parse_str::<syn::Ident>(trimmed).is_err() || trimmed == "gen" => {
            format!("r#{trimmed}")
        }
        Some(_) => trimmed.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_rust_has_them() {
        let camels = [
            ("NFS3_OK", "Nfs3Ok"),
            ("READ3args", "Read3args"),
            ("nameLen", "NameLen"),
            ("pmaplist", "Pmaplist"),
            ("rp__list", "RpList"),
            ("_", "Type"),
            ("_3d", "N3d"),
            ("v1_2", "V1V2"),
            ("self", "SelfType"),
        ];
        for (name, expected) in camels {
            assert_eq!(camel(name), expected);
        }
        let snakes = [
            ("nameLen", "name_len"),
            ("r_prog", "r_prog"),
            ("type", "r#type"),
            ("self", "self_"),
            ("UID", "uid"),
            ("__x__", "x"),
            ("_1", "n1"),
            ("ECHO_V1", "echo_v1"),
        ];
        for (name, expected) in snakes {
            assert_eq!(snake(name), expected);
        }
        let mut scope = Scope::of("List");
        assert_eq!(scope.unique_type("List"), "ListType");
        assert_eq!(scope.unique_type("List"), "ListType2");
        assert_eq!((scope.unique("a"), scope.unique("a")), ("a".into(), "a_2".into()));
    }
}
