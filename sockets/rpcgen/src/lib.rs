//! Compiler of the RPC language: what remote programs offer and how their data look (RFC 4506,
//! section 6; RFC 5531, section 12).
//!
//! ```
//! let text = "
//!     struct greeting { string to<255>; unsigned times; };
//!     program GREETER { version GREETER_1 { string GREET(greeting) = 1; } = 1; } = 0x20000001;
//! ";
//! let model = xk_rpcgen::compile("greeter.x", text).expect("no mistakes").model;
//! let greet = model.procedure("greet", None).expect("defined above");
//!
//! // Arguments from JSON to octets, and a result back: what `xk call` does.
//! let arguments = serde_json::json!({ "to": "world", "times": 2 });
//! let octets = model.encode_arguments(greet.procedure, Some(&arguments))?;
//! assert_eq!(octets, b"\0\0\0\x05world\0\0\0\0\0\0\x02");
//! let result = model.decode_result(greet.procedure, b"\0\0\0\x02hi\0\0")?;
//! assert_eq!(result, r#""hi""#);
//!
//! // The same as Rust source.
//! let rust = xk_rpcgen::to_rust(&model, &Default::default());
//! assert!(rust.contains("pub struct Greeting {"));
//! assert!(rust.contains("fn greet(&self, call: &Call<'_>, argument: Greeting)"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The language
//! That of the two standards, and what rpcgen reads besides: several arguments (as with its option
//! `-N`), the integers of C (`long`, `u_int`, `uint32_t`, ...; those of less than 32 bits have 4
//! octets, as its library writes them), `struct NAME` for `NAME`, values of enumerations without a
//! number. Lines that begin with `%` are C, and `#include` brings in other files: both are left
//! out, with one warning, or with one error that names all that is missing for it. Of the C
//! preprocessor `#ifdef`, `#ifndef`, `#if 0`, `#else`, `#endif` and `#define` are obeyed; what only
//! a header or a server is to have (`RPC_HDR`, `RPC_SVC`) is not read.
//!
//! Arguments of a procedure may have names, as in C: generated Rust calls them so.
//!
//! # Lists
//! A structure whose last component is a pointer to the next of its kind, and which is mentioned by
//! pointers alone, is the node of a linked list: a [`Type::List`], which is read and written
//! without recursion.
//!
//! # JSON
//! | in the language | in JSON |
//! | --- | --- |
//! | integers | a number; of 64 bits beyond 2^53 a string of decimal digits, which is taken for any |
//! | `float`, `double` | a number, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | `quadruple`, `opaque` | a string of hexadecimal digits; `{"base64": ...}` and `{"text": ...}` are taken, too, and `opaque` of no fixed length that is text is shown as that |
//! | `string` | a string; if it is not UTF-8 `{"hex": ...}` |
//! | `bool` | `true`, `false` |
//! | enumerations | the value's name; its number is taken, too |
//! | structures | an object with all components by their names |
//! | unions | `{"case": ..., "NAME": ...}`: what decides, and the component by its name if there is one |
//! | arrays, linked lists | an array |
//! | `T *x` | `null` or the value; of what may be `null` itself, an array of one |
//! | `void` | `null` |
//!
//! A procedure's only argument stands alone, several stand in an array.

mod ast;
mod build;
mod check;
mod json;
mod lex;
mod lookup;
mod model;
mod parse;
mod rust;

pub use build::{BuildError, build, build_to};
pub use json::JsonError;
pub use lookup::{Found, LookupError};
pub use model::{
    Arm, Constant, Field, Kind, Model, Procedure, Program, Type, TypeDef, Union, Version,
};
pub use rust::{Options, to_rust};

use xk_lang::Diagnostics;

/// The most octets a file may have.
pub const SOURCE_OCTETS_MAX: usize = 4 << 20;

/// Meaning of a file without mistakes.
#[derive(Debug)]
pub struct Compiled {
    /// The file's meaning.
    pub model: Model,
    /// Warnings: what was left out of it, and what is probably not meant so.
    pub warnings: Diagnostics,
}

/// Reads a file's text; `file` is what mistakes call it.
///
/// # Errors
/// All mistakes, with their places.
pub fn compile(file: &str, text: &str) -> Result<Compiled, Box<Diagnostics>> {
    let mut found = Diagnostics::new(file, text);
    if text.len() > SOURCE_OCTETS_MAX {
        let what = format!("the file has more than {SOURCE_OCTETS_MAX} octets");
        found.error(xk_lang::Span::default(), what);
        return Err(Box::new(found));
    }
    let words = lex::lex(text, &mut found);
    let definitions = parse::parse(&words, &mut found);
    if found.has_errors() {
        return Err(Box::new(found));
    }
    let model = check::check(&definitions, &words, &mut found);
    if found.has_errors() {
        return Err(Box::new(found));
    }
    Ok(Compiled { model, warnings: found })
}
