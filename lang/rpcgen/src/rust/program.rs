//! Services and clients.

use super::Rust;
use super::names::{Scope, VersionNames, snake};
use super::write;
use crate::model::{Procedure, Program, Type, Version};

/// How many values one tuple has; more are tuples within a tuple, whose octets are the same.
const TUPLE_MAX: usize = 5;

/// Names of one procedure.
struct Names {
    method: String,
    constant: String,
    arguments: Vec<String>,
}

impl Names {
    /// All arguments as one expression or pattern.
    fn tuple(&self) -> String {
        match self.parts().len() {
            0 => "()".into(),
            1 => tuple(&self.arguments),
            count => {
                let parts = (1..=count).map(|at| format!("part{at}"));
                tuple(&parts.collect::<Vec<_>>())
            }
        }
    }

    fn parts(&self) -> Vec<String> {
        self.arguments.chunks(TUPLE_MAX).map(tuple).collect()
    }

    /// The parts of a tuple of tuples, each with its number; none if one tuple is enough.
    fn numbered_parts(&self) -> impl Iterator<Item = (usize, String)> {
        let parts = Some(self.parts()).filter(|parts| parts.len() > 1);
        (1..).zip(parts.into_iter().flatten())
    }
}

fn tuple(names: &[String]) -> String {
    let comma = if names.len() == 1 { "," } else { "" };
    format!("({}{comma})", names.join(", "))
}

impl Rust<'_> {
    pub(super) fn program(&mut self, at: usize, program: &Program) {
        let Some(names) = self.names.program(at) else {
            return;
        };
        let (constant, versions) = (names.constant.clone(), names.versions.clone());
        self.item(format!("/// The program `{}`.", program.name));
        self.line(format!("pub const {constant}: u32 = {};", program.number));
        for (version, own) in program.versions.iter().zip(&versions) {
            let procedures = self.names_of(version);
            let said = format!("version {} of the program `{}`", version.number, program.name);
            self.numbers(version, own, &procedures, &said);
            self.service(version, own, &procedures, &said);
            self.server(version, own, &procedures, &constant);
            self.client(version, own, &procedures, &constant, &said);
        }
    }

    fn names_of(&self, version: &Version) -> Vec<Names> {
        let mut methods = Scope::of(&["new", "client"]);
        let mut constants = Scope::of(&["VERSION"]);
        let procedures = version.procedures.iter();
        let names = procedures.map(|procedure| Names {
            method: methods.unique(&snake(&procedure.name)),
            constant: constants.unique(&procedure.name.to_uppercase()),
            arguments: arguments(procedure),
        });
        names.collect()
    }

    /// What stands above a procedure.
    fn document(&mut self, procedure: &Procedure, indent: &str) {
        let said = self.model.describe_procedure(procedure);
        self.line(format!("{indent}/// `{said}`."));
    }

    fn numbers(&mut self, version: &Version, own: &VersionNames, names: &[Names], said: &str) {
        self.item(format!("/// Numbers: of {said}, and of its procedures."));
        self.line(format!("pub mod {} {{", own.module));
        self.line("    /// The version.");
        self.line(format!("    pub const VERSION: u32 = {};", version.number));
        for (procedure, names) in version.procedures.iter().zip(names) {
            self.document(procedure, "    ");
            let (constant, number) = (&names.constant, procedure.number);
            self.line(format!("    pub const {constant}: u32 = {number};"));
        }
        self.line("}");
    }

    fn parameters(&self, procedure: &Procedure, names: &Names) -> Vec<String> {
        let all = names.arguments.iter().zip(&procedure.arguments);
        all.map(|(name, ty)| format!("{name}: {}", self.ty(ty))).collect()
    }

    fn service(&mut self, version: &Version, own: &VersionNames, names: &[Names], said: &str) {
        self.item(format!("/// What a server of {said} offers."));
        self.line(format!("pub trait {} {{", own.service));
        for (at, (procedure, names)) in version.procedures.iter().zip(names).enumerate() {
            if at > 0 {
                self.line("");
            }
            self.document(procedure, "    ");
            let mut parameters = vec!["&self".into(), "call: &Call<'_>".into()];
            parameters.extend(self.parameters(procedure, names));
            let front = format!("fn {}", names.method);
            let result = self.ty(&procedure.result);
            if is_null(procedure) {
                let head = write::head(4, &front, &parameters, " -> Result<(), Refusal> {");
                self.line(head);
                self.line("        let _ = call;\n        Ok(())\n    }");
            } else {
                let end = format!(" -> Result<{result}, Refusal>;");
                let head = write::head(4, &front, &parameters, &end);
                self.line(head);
            }
        }
        self.line("}");
    }

    fn server(&mut self, version: &Version, own: &VersionNames, names: &[Names], program: &str) {
        let VersionNames { service, server, module, .. } = own;
        self.item(format!("/// Serves a [`{service}`]."));
        self.line("#[derive(Clone, Debug)]");
        self.line(format!("pub struct {server}<T>(pub T);"));
        self.item(format!("impl<T: {service} + Send + 'static> Service for {server}<T> {{"));
        self.line("    fn program(&self) -> Option<(u32, u32)> {");
        self.line(format!("        Some(({program}, {module}::VERSION))"));
        self.line("    }\n");
        self.line("    fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal> {");
        self.line("        match call.procedure() {");
        for (procedure, names) in version.procedures.iter().zip(names) {
            self.line(format!("            {module}::{} => {{", names.constant));
            let pattern = names.tuple();
            self.line(format!("                let {pattern} = call.arguments()?;"));
            for (at, part) in names.numbered_parts() {
                self.line(format!("                let {part} = part{at};"));
            }
            let mut arguments = vec!["&self.0".into(), "call".into()];
            arguments.extend(names.arguments.iter().cloned());
            let (front, end) = match procedure.result {
                Type::Void => (format!("T::{}", names.method), "?;"),
                _ => (format!("let result = T::{}", names.method), "?;"),
            };
            let call = write::call(16, &front, &arguments, end);
            self.line(call);
            self.line(match procedure.result {
                Type::Void => "                Ok(Reply::empty())",
                _ => "                Reply::of(&result)",
            });
            self.line("            }");
        }
        if !version.procedures.iter().any(|p| p.number == 0) {
            self.line("            0 => Ok(Reply::empty()),");
        }
        self.line("            _ => Err(Refusal::NoProcedure),");
        self.line("        }\n    }\n}");
    }

    fn client(
        &mut self,
        version: &Version,
        own: &VersionNames,
        names: &[Names],
        program: &str,
        said: &str,
    ) {
        let VersionNames { client, module, .. } = own;
        self.item(format!("/// Calls {said}."));
        self.line("#[derive(Clone, Debug)]");
        self.line(format!("pub struct {client}(Client);"));
        self.item(format!("impl {client} {{"));
        self.line("    /// Calls whomever `client` calls.");
        self.line("    pub fn new(client: &Client) -> Self {");
        let arguments = [program.to_owned(), format!("{module}::VERSION")];
        let inner = write::call(8, "Self(client.program", &arguments, ")");
        self.line(inner);
        self.line("    }\n");
        self.line("    /// The client without types.");
        self.line("    pub fn client(&self) -> &Client {\n        &self.0\n    }");
        for (procedure, names) in version.procedures.iter().zip(names) {
            self.line("");
            self.document(procedure, "    ");
            let mut parameters = vec!["&self".into()];
            parameters.extend(self.parameters(procedure, names));
            let front = format!("pub fn {}", names.method);
            let end = format!(" -> Result<{}, Error> {{", self.ty(&procedure.result));
            let head = write::head(4, &front, &parameters, &end);
            self.line(head);
            for (at, part) in names.numbered_parts() {
                self.line(format!("        let part{at} = {part};"));
            }
            let number = format!("{module}::{}", names.constant);
            let arguments = match names.arguments.as_slice() {
                [only] => format!("&{only}"),
                _ => format!("&{}", names.tuple()),
            };
            let short = format!("self.0.invoke({number}, {arguments})");
            if short.len() <= 60 {
                self.line(format!("        {short}"));
            } else {
                let arguments = ["&self.0".to_owned(), number, arguments];
                let call = write::call(8, "Client::invoke", &arguments, "");
                self.line(call);
            }
            self.line("    }");
        }
        self.line("}");
    }
}

/// What the arguments are called: as in the file, or by their places.
fn arguments(procedure: &Procedure) -> Vec<String> {
    let mut scope = Scope::of(&["call", "result"]);
    let parts = (1..=procedure.arguments.len()).map(|at| format!("part{at}"));
    parts.for_each(|part| drop(scope.unique(&part)));
    let is_only = procedure.arguments.len() == 1;
    let names = procedure.argument_names.iter().zip(1..);
    names
        .map(|(name, at)| match name {
            Some(name) => scope.unique(&snake(name)),
            None if is_only => "argument".into(),
            None => scope.unique(&format!("argument{at}")),
        })
        .collect()
}

/// The procedure that says nothing but that the server is there.
fn is_null(procedure: &Procedure) -> bool {
    procedure.number == 0 && procedure.arguments.is_empty() && procedure.result == Type::Void
}
