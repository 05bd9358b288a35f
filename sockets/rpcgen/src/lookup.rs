//! Procedures by what a person types.

use crate::model::{Model, Procedure, Program, Version};

/// A procedure, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The program.
    pub program: &'a Program,
    /// The version.
    pub version: &'a Version,
    /// The procedure.
    pub procedure: &'a Procedure,
}

/// Why there is no such procedure, or not one alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({help})")]
pub struct LookupError {
    /// The mistake.
    pub what: String,
    /// Remedy: what there is instead.
    pub help: String,
}

/// Whether a name in the file is meant: letters of either case, with what the names around it begin
/// with left out if one likes.
fn fits(name: &str, number: u32, typed: &str) -> bool {
    if typed.parse() == Ok(number) {
        return true;
    }
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let (name, typed) = (fold(name), fold(typed));
    name == typed || (name.strip_suffix(&typed)).is_some_and(|front| front.ends_with('_'))
}

impl Model {
    /// The procedure of this name or number, in the highest version that has it, or in `version`, a
    /// name or a number as well. A name may be in letters of either case, and without the prefix
    /// that names in C have: `null` for `NFSPROC3_NULL`.
    ///
    /// # Errors
    /// None has it, or more than one program.
    pub fn procedure(&self, name: &str, version: Option<&str>) -> Result<Found<'_>, LookupError> {
        self.procedure_of(None, name, version)
    }

    /// Looks within the program of this name or number.
    ///
    /// # Errors
    /// As for [`Model::procedure`], or if there is no such program.
    pub fn procedure_of(
        &self,
        program: Option<&str>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Found<'_>, LookupError> {
        let programs = self.programs.iter();
        let programs: Vec<&Program> = programs
            .filter(|p| program.is_none_or(|typed| fits(&p.name, p.number, typed)))
            .collect();
        if programs.is_empty() {
            return Err(self.no_program(program));
        }
        let mut all: Vec<Found<'_>> = Vec::new();
        for program in &programs {
            let versions = program.versions.iter();
            let versions =
                versions.filter(|v| version.is_none_or(|typed| fits(&v.name, v.number, typed)));
            let found = versions
                .flat_map(|version| {
                    let procedures = version.procedures.iter();
                    procedures.map(move |procedure| Found { program, version, procedure })
                })
                .filter(|found| fits(&found.procedure.name, found.procedure.number, name));
            // The whole name rather than the end of one, then the newest version.
            let best = found.max_by_key(|found| {
                let exact = found.procedure.name.eq_ignore_ascii_case(name);
                (exact, found.version.number)
            });
            all.extend(best);
        }
        match all.as_slice() {
            [only] => Ok(*only),
            [] => Err(no_procedure(&programs, name, version)),
            [first, second, ..] => Err(LookupError {
                what: format!("more than one program has a procedure `{name}`"),
                help: format!(
                    "name the program: `{}` or `{}`",
                    first.program.name, second.program.name
                ),
            }),
        }
    }

    /// Whether a program has this name or number.
    pub fn has_program(&self, typed: &str) -> bool {
        self.programs.iter().any(|p| fits(&p.name, p.number, typed))
    }

    fn no_program(&self, typed: Option<&str>) -> LookupError {
        let names: Vec<_> = self.programs.iter().map(|p| p.name.as_str()).collect();
        match (typed, names.is_empty()) {
            (_, true) => LookupError {
                what: "the file defines no program".into(),
                help: "add one: program NAME { version NAME { ... } = 1; } = 0x20000001;".into(),
            },
            (typed, false) => LookupError {
                what: format!("the file defines no program `{}`", typed.unwrap_or("")),
                help: format!("it has {}", names.join(", ")),
            },
        }
    }
}

fn no_procedure(programs: &[&Program], name: &str, version: Option<&str>) -> LookupError {
    let versions = programs.iter().flat_map(|p| &p.versions);
    let procedures = versions.flat_map(|v| &v.procedures);
    let names: Vec<&str> = procedures.map(|p| p.name.as_str()).collect();
    let what = match version {
        Some(version) => format!("there is no procedure `{name}` in version {version}"),
        None => format!("there is no procedure `{name}`"),
    };
    let help = match xk_lang::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let mut some: Vec<&str> = names;
            some.dedup();
            some.truncate(12);
            format!("there are {}", some.join(", "))
        }
    };
    LookupError { what, help }
}
