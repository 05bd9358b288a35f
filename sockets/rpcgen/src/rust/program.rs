//! Services and clients.

use super::Rust;
use super::names::{Scope, VersionNames, snake};
use crate::model::{Procedure, Program, Type, Version};

/// Largest number of values of one tuple; more are tuples within a tuple, whose octets are the
/// same.
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
        let constant = &names.constant;
        let mut text = format!(
            "/// The program `{}`.\npub const {constant}: u32 = {};\n",
            program.name, program.number
        );
        for (version, own) in program.versions.iter().zip(&names.versions) {
            let procedures = procedures(version);
            let said = format!("version {} of the program `{}`", version.number, program.name);
            text += &self.numbers(version, own, &procedures, &said);
            text += &self.service(version, own, &procedures, &said);
            text += &server(version, own, &procedures, constant);
            text += &self.client(version, own, &procedures, constant, &said);
        }
        self.out += &text;
    }

    /// Doc comment of a procedure.
    fn document(&self, procedure: &Procedure) -> String {
        format!("/// `{}`.\n", self.model.describe_procedure(procedure))
    }

    fn numbers(
        &self,
        version: &Version,
        own: &VersionNames,
        names: &[Names],
        said: &str,
    ) -> String {
        let mut all = String::new();
        for (procedure, names) in version.procedures.iter().zip(names) {
            let (constant, number) = (&names.constant, procedure.number);
            all += &self.document(procedure);
            all += &format!("pub const {constant}: u32 = {number};");
        }
        format!(
            "/// Numbers: of {said}, and of its procedures.
            pub mod {} {{
                /// The version.
                pub const VERSION: u32 = {};
                {all}
            }}\n",
            own.module, version.number
        )
    }

    /// The parameters of a procedure behind `self` and, of a service's method, `call`.
    fn parameters(&self, procedure: &Procedure, names: &Names) -> String {
        let all = names.arguments.iter().zip(&procedure.arguments);
        all.map(|(name, ty)| format!(", {name}: {}", self.ty(ty))).collect()
    }

    fn service(
        &self,
        version: &Version,
        own: &VersionNames,
        names: &[Names],
        said: &str,
    ) -> String {
        let mut all = String::new();
        for (procedure, names) in version.procedures.iter().zip(names) {
            let result = self.ty(&procedure.result);
            let (method, parameters) = (&names.method, self.parameters(procedure, names));
            all += &self.document(procedure);
            all += &format!("fn {method}(&self, call: &Call<'_>{parameters})");
            all += &format!(" -> Result<{result}, Refusal>");
            all += if is_null(procedure) { "{ let _ = call; Ok(()) }" } else { ";" };
        }
        let service = &own.service;
        format!("/// Procedures of {said}.\npub trait {service} {{ {all} }}\n")
    }

    fn client(
        &self,
        version: &Version,
        own: &VersionNames,
        names: &[Names],
        program: &str,
        said: &str,
    ) -> String {
        let VersionNames { client, module, .. } = own;
        let mut all = String::new();
        for (procedure, names) in version.procedures.iter().zip(names) {
            let (method, parameters) = (&names.method, self.parameters(procedure, names));
            let result = self.ty(&procedure.result);
            let parts = names.numbered_parts().map(|(at, part)| format!("let part{at} = {part};"));
            let parts: String = parts.collect();
            let arguments = match names.arguments.as_slice() {
                [only] => only.clone(),
                _ => names.tuple(),
            };
            all += &self.document(procedure);
            all += &format!(
                "pub fn {method}(&self{parameters}) -> Result<{result}, Error> {{
                    {parts} self.0.invoke({module}::{}, &{arguments})
                }}",
                names.constant
            );
        }
        format!(
            "/// Calls {said}.
            #[derive(Clone, Debug)]
            pub struct {client}(Client);
            impl {client} {{
                /// Calls whomever `client` calls.
                pub fn new(client: &Client) -> Self {{
                    Self(client.program({program}, {module}::VERSION))
                }}
                /// The client without types.
                pub fn client(&self) -> &Client {{ &self.0 }}
                {all}
            }}\n"
        )
    }
}

fn procedures(version: &Version) -> Vec<Names> {
    let mut methods = Scope::of("new client");
    let mut constants = Scope::of("VERSION");
    let procedures = version.procedures.iter();
    let names = procedures.map(|procedure| Names {
        method: methods.unique(&snake(&procedure.name)),
        constant: constants.unique(&procedure.name.to_uppercase()),
        arguments: arguments(procedure),
    });
    names.collect()
}

fn server(version: &Version, own: &VersionNames, names: &[Names], program: &str) -> String {
    let VersionNames { service, server, module, .. } = own;
    let mut arms = String::new();
    for (procedure, names) in version.procedures.iter().zip(names) {
        let (pattern, method) = (names.tuple(), &names.method);
        let parts = names.numbered_parts().map(|(at, part)| format!("let {part} = part{at};"));
        let parts: String = parts.collect();
        let arguments: String = names.arguments.iter().map(|name| format!(", {name}")).collect();
        let call = format!("T::{method}(&self.0, call{arguments})?;");
        let reply = match procedure.result {
            Type::Void => format!("{call} Ok(Reply::empty())"),
            _ => format!("let result = {call} Reply::of(&result)"),
        };
        let constant = &names.constant;
        arms += &format!(
            "{module}::{constant} => {{ let {pattern} = call.arguments()?; {parts} {reply} }}"
        );
    }
    if !version.procedures.iter().any(|p| p.number == 0) {
        arms += "0 => Ok(Reply::empty()),";
    }
    format!(
        "/// Serves a [`{service}`].
        #[derive(Clone, Debug)]
        pub struct {server}<T>(pub T);
        impl<T: {service} + Send + 'static> Service for {server}<T> {{
            fn program(&self) -> Option<(u32, u32)> {{
                Some(({program}, {module}::VERSION))
            }}
            fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal> {{
                match call.procedure() {{ {arms} _ => Err(Refusal::NoProcedure), }}
            }}
        }}\n"
    )
}

/// Names of the arguments: as in the file, or by their places.
fn arguments(procedure: &Procedure) -> Vec<String> {
    let mut scope = Scope::of("call result");
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
