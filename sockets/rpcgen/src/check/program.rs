//! Programs, versions and procedures (RFC 5531, section 12.3).

use super::{Checker, Meaning};
use crate::ast::{self, Name, Value};
use crate::model::{Procedure, Program, Type, Version};
use std::collections::HashMap;
use xk_lang::Span;

/// Largest number of arguments of a procedure.
const ARGUMENTS_MAX: usize = 25;

/// Names and numbers of one scope.
#[derive(Default)]
struct Scope {
    names: HashMap<String, Span>,
    numbers: HashMap<u32, Span>,
}

impl Checker<'_> {
    pub(super) fn program(&mut self, name: &Name, versions: &[ast::Version], number: &Value) {
        let number = self.number(number, "program number");
        if let Some(first) = self.model.programs.iter().find(|p| p.number == number) {
            let what = format!("the program `{}` has the number {number}", first.name);
            self.found.error(name.span, what).help("give one of them another number");
        }
        self.mean(name, Meaning::Constant(number.into()));
        let mut scope = Scope::default();
        let mut all = Vec::new();
        for version in versions {
            let number = self.number(&version.number, "version number");
            self.enter(&mut scope, &version.name, number, "version");
            all.push(Version {
                name: version.name.value.clone(),
                number,
                procedures: self.procedures(version),
            });
        }
        self.model.programs.push(Program { name: name.value.clone(), number, versions: all });
    }

    fn number(&mut self, value: &Value, what: &str) -> u32 {
        self.unsigned(value, what).unwrap_or(0)
    }

    fn enter(&mut self, scope: &mut Scope, name: &Name, number: u32, what: &str) {
        if let Some(first) = scope.names.insert(name.value.clone(), name.span) {
            self.found
                .error(name.span, format!("a second {what} `{name}`"))
                .also(first, "the first one")
                .help("give one of them another name");
        }
        if let Some(first) = scope.numbers.insert(number, name.span) {
            self.found
                .error(name.span, format!("a second {what} with the number {number}"))
                .also(first, "the first one")
                .help("give one of them another number");
        }
    }

    fn procedures(&mut self, version: &ast::Version) -> Vec<Procedure> {
        let mut scope = Scope::default();
        let mut all = Vec::new();
        for procedure in &version.procedures {
            let number = self.number(&procedure.number, "procedure number");
            self.enter(&mut scope, &procedure.name, number, "procedure");
            let name = &procedure.name.value;
            let result = self.type_of(&procedure.result, &format!("{name}_result"));
            let mut arguments: Vec<Type> = Vec::new();
            let mut argument_names = Vec::new();
            for (at, argument) in procedure.arguments.iter().enumerate() {
                let ty = self.type_of(argument, &format!("{name}_argument{}", at + 1));
                if ty != Type::Void {
                    arguments.push(ty);
                    let own = Some(&argument.name.value).filter(|name| !name.is_empty());
                    argument_names.push(own.cloned());
                } else if procedure.arguments.len() > 1 {
                    self.found
                        .error(argument.span, "`void` stands alone or not at all")
                        .help("take it out");
                }
            }
            if arguments.len() > ARGUMENTS_MAX {
                let what = format!("more than {ARGUMENTS_MAX} arguments");
                self.found.error(procedure.name.span, what).help("put them into a structure");
            }
            if number == 0 && !(arguments.is_empty() && result == Type::Void) {
                self.found
                    .warning(
                        procedure.name.span,
                        "procedure 0 has arguments or a result",
                    )
                    .help("others call it without, to see whether the server is there: void NAME(void) = 0");
            }
            all.push(Procedure { name: name.clone(), number, arguments, argument_names, result });
        }
        all
    }
}
