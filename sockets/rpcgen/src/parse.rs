//! Makes definitions from words (RFC 4506, section 6.3; RFC 5531, section 12.2). rpcgen's
//! extensions are allowed: several arguments, the integers of C, `struct NAME` for a type that has
//! this name.

use crate::ast::{
    Case, Declaration, Definition, EnumItem, Name, Procedure, Shape, Spec, UnionBody, Value,
    Version,
};
use crate::lex::{Token, Words};
use xk_lang::{Diagnostics, Span, Spanned};

/// Largest depth of nested declarations.
const DEPTH_MAX: u32 = 32;

/// RFC 4506, section 6.4; RFC 5531, section 12.3.
const KEYWORDS: &str = "bool case const default double quadruple enum float hyper int opaque \
                        program string struct switch typedef union unsigned version void";

fn is_keyword(word: &str) -> bool {
    KEYWORDS.split(' ').any(|keyword| keyword == word)
}

/// A mistake has been noted; go on behind the definition.
struct Lost;
type Parsed<T> = Result<T, Lost>;

struct Parser<'a> {
    tokens: &'a [Spanned<Token>],
    at: usize,
    depth: u32,
    found: &'a mut Diagnostics,
}

/// Reads all definitions; after a mistake it goes on with the next one.
pub(crate) fn parse(words: &Words, found: &mut Diagnostics) -> Vec<Definition> {
    let mut parser = Parser { tokens: &words.tokens, at: 0, depth: 0, found };
    let mut all = Vec::new();
    while *parser.peek() != Token::End {
        let start = parser.at;
        match parser.definition() {
            Ok(definition) => all.push(definition),
            Err(Lost) => parser.recover(start),
        }
    }
    all
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |t| &t.value)
    }

    fn span(&self) -> Span {
        let last = self.tokens.last().map_or(Span::default(), |t| t.span);
        self.tokens.get(self.at).map_or(last, |t| t.span)
    }

    /// The span from `start` to the last word read.
    fn since(&self, start: Span) -> Span {
        match self.at.checked_sub(1).and_then(|at| self.tokens.get(at)) {
            Some(last) if last.span.offset >= start.offset => start.to(last.span),
            _ => start,
        }
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn wrong<T>(&mut self, expected: &str) -> Parsed<T> {
        let what = format!("{} does not fit here", self.peek().describe());
        self.found.error(self.span(), what).expected(expected);
        Err(Lost)
    }

    fn is_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    fn eat(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        if self.eat(mark) {
            return Ok(());
        }
        self.wrong(&format!("`{mark}`"))
    }

    /// Goes behind the definition from `start` on that is not understood: behind the `;` outside
    /// all braces.
    fn recover(&mut self, start: usize) {
        let read = self.tokens.get(start..self.at).unwrap_or_default();
        let mut depth = read.iter().fold(0u32, |depth, token| match token.value {
            Token::Mark('{') => depth + 1,
            Token::Mark('}') => depth.saturating_sub(1),
            _ => depth,
        });
        if self.at == start {
            self.at += 1;
        }
        loop {
            match self.next() {
                Token::End => {
                    self.at = self.tokens.len().saturating_sub(1);
                    return;
                }
                Token::Mark('{') => depth += 1,
                Token::Mark('}') => depth = depth.saturating_sub(1),
                Token::Mark(';') if depth == 0 => return,
                Token::Word(word) if depth == 0 && self.starts(&word) => {
                    self.at -= 1;
                    return;
                }
                _ => {}
            }
        }
    }

    /// Whether a definition begins with this word, seen behind it: a `struct` in the middle of one
    /// has no body.
    fn starts(&self, word: &str) -> bool {
        match word {
            "const" | "typedef" | "program" => true,
            "struct" | "enum" | "union" => {
                let behind = self.tokens.get(self.at + 1).map(|t| &t.value);
                matches!(behind, Some(Token::Mark('{')))
                    || matches!(behind, Some(Token::Word(w)) if w == "switch")
            }
            _ => false,
        }
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        let span = self.span();
        match self.peek() {
            Token::Word(word) if is_keyword(word) => {
                let text = format!("the keyword `{word}` is no name");
                self.found.error(span, text).help("choose another name");
                Err(Lost)
            }
            Token::Word(word) => {
                let name = Spanned::new(word.clone(), span);
                self.at += 1;
                Ok(name)
            }
            _ => self.wrong(what),
        }
    }

    fn value(&mut self) -> Parsed<Value> {
        let span = self.span();
        match *self.peek() {
            Token::Number(number) => {
                self.at += 1;
                Ok(Value::Number(Spanned::new(number, span)))
            }
            Token::Word(_) => Ok(Value::Name(self.name("a constant")?)),
            _ => self.wrong("a number, or the name of a constant"),
        }
    }

    fn definition(&mut self) -> Parsed<Definition> {
        let Token::Word(word) = self.peek().clone() else {
            return self
                .wrong("`const`, `typedef`, `enum`, `struct`, `union` or `program` and a name");
        };
        self.at += 1;
        let definition = match word.as_str() {
            "const" => {
                let name = self.name("the constant's name")?;
                self.mark('=')?;
                if *self.peek() == Token::Text {
                    let what = format!("the constant `{name}` is no number and is left out");
                    self.found
                        .warning(self.span(), what)
                        .help("only C programs use strings, by way of the C preprocessor");
                    self.at += 1;
                    Definition::Ignored
                } else {
                    Definition::Const(name, self.value()?)
                }
            }
            "typedef" => Definition::Typedef(self.declaration()?),
            "enum" => Definition::Enum(self.name("the enumeration's name")?, self.enum_body()?),
            "struct" => Definition::Struct(self.name("the structure's name")?, self.struct_body()?),
            "union" => {
                let name = self.name("the union's name")?;
                Definition::Union(name, Box::new(self.union_body()?))
            }
            "program" => self.program()?,
            other => {
                self.at -= 1;
                let words = ["const", "typedef", "enum", "struct", "union", "program"];
                let what = format!("no definition begins with `{other}`");
                let span = self.span();
                self.found
                    .error(span, what)
                    .expected("`const`, `typedef`, `enum`, `struct`, `union` or `program`")
                    .suggest(other, words);
                return Err(Lost);
            }
        };
        self.mark(';')?;
        Ok(definition)
    }

    fn enum_body(&mut self) -> Parsed<Vec<EnumItem>> {
        self.mark('{')?;
        let mut items = Vec::new();
        loop {
            let name = self.name("the name of a value")?;
            let value = if self.eat('=') { Some(self.value()?) } else { None };
            items.push(EnumItem { name, value });
            if self.eat(',') {
                // rpcgen lets the last one have a comma, too.
                if self.eat('}') {
                    return Ok(items);
                }
            } else {
                self.mark('}')?;
                return Ok(items);
            }
        }
    }

    fn struct_body(&mut self) -> Parsed<Vec<Declaration>> {
        self.mark('{')?;
        let mut fields = Vec::new();
        while fields.is_empty() || !self.is_mark('}') {
            fields.push(self.declaration()?);
            self.mark(';')?;
        }
        self.mark('}')?;
        Ok(fields)
    }

    fn union_body(&mut self) -> Parsed<UnionBody> {
        if !self.eat_word("switch") {
            return self.wrong("`switch`");
        }
        self.mark('(')?;
        let discriminant = self.declaration()?;
        self.mark(')')?;
        self.mark('{')?;
        let mut cases = Vec::new();
        let mut default = None;
        while !self.is_mark('}') {
            let start = self.span();
            if self.eat_word("default") {
                self.mark(':')?;
                let body = self.declaration()?;
                if default.is_some() {
                    let what = "the union has a default already";
                    self.found.error(start, what).help("take one of them out");
                }
                default = Some(body);
            } else {
                let mut values = Vec::new();
                while self.eat_word("case") {
                    values.push(self.value()?);
                    self.mark(':')?;
                }
                if values.is_empty() {
                    return self.wrong("`case`, `default` or `}`");
                }
                let body = self.declaration()?;
                cases.push(Case { values, body });
            }
            self.mark(';')?;
        }
        self.mark('}')?;
        Ok(UnionBody { discriminant, cases, default })
    }

    /// A type and a name, or `void`.
    fn declaration(&mut self) -> Parsed<Declaration> {
        let start = self.span();
        let spec = self.spec()?;
        if matches!(spec, Spec::Void) {
            return Ok(self.anonymous(start, spec, Shape::Plain));
        }
        let optional = self.eat('*');
        let name = self.name("a name")?;
        let shape = if optional { Shape::Optional } else { self.shape()? };
        Ok(Declaration { name, spec, shape, span: self.since(start) })
    }

    /// Parses the form behind a name.
    fn shape(&mut self) -> Parsed<Shape> {
        if self.eat('[') {
            let value = self.value()?;
            self.mark(']')?;
            return Ok(Shape::Fixed(value));
        }
        if self.eat('<') {
            let value = if self.is_mark('>') { None } else { Some(self.value()?) };
            self.mark('>')?;
            return Ok(Shape::Variable(value));
        }
        Ok(Shape::Plain)
    }

    fn spec(&mut self) -> Parsed<Spec> {
        let span = self.span();
        if self.depth >= DEPTH_MAX {
            self.found
                .error(span, "declarations nest too deep")
                .help("give the inner type a name of its own");
            return Err(Lost);
        }
        self.depth += 1;
        let spec = self.spec_at(span);
        self.depth -= 1;
        spec
    }

    fn spec_at(&mut self, span: Span) -> Parsed<Spec> {
        let Token::Word(word) = self.peek().clone() else {
            return self.wrong("a type");
        };
        self.at += 1;
        Ok(match word.as_str() {
            "void" => Spec::Void,
            "int" => Spec::Int,
            "hyper" => Spec::Hyper,
            "float" => Spec::Float,
            "double" => Spec::Double,
            "quadruple" => Spec::Quadruple,
            "bool" => Spec::Bool,
            "opaque" => Spec::Opaque,
            "string" => Spec::Text,
            "unsigned" => {
                // Alone it is an integer.
                let Token::Word(word) = self.peek().clone() else {
                    return Ok(Spec::Unsigned);
                };
                let spec = match word.as_str() {
                    "hyper" => Spec::UnsignedHyper,
                    "int" | "long" | "short" | "char" => Spec::Unsigned,
                    _ => return Ok(Spec::Unsigned),
                };
                self.at += 1;
                self.eat_word("int");
                spec
            }
            // The integers of C, as rpcgen's library writes them: 4 octets each.
            "long" | "short" | "char" => {
                self.eat_word("int");
                Spec::Int
            }
            "enum" if self.is_mark('{') => Spec::Enum(self.enum_body()?),
            "struct" if self.is_mark('{') => Spec::Struct(self.struct_body()?),
            "union" if self.is_word("switch") => Spec::Union(Box::new(self.union_body()?)),
            "enum" | "struct" | "union" => Spec::Named(self.name("a type's name")?),
            other if is_keyword(other) => {
                self.at -= 1;
                return self.wrong("a type");
            }
            _ => Spec::Named(Spanned::new(word, span)),
        })
    }

    fn program(&mut self) -> Parsed<Definition> {
        let name = self.name("the program's name")?;
        self.mark('{')?;
        let mut versions = Vec::new();
        while versions.is_empty() || !self.is_mark('}') {
            versions.push(self.version()?);
            self.mark(';')?;
        }
        self.mark('}')?;
        self.mark('=')?;
        let number = self.value()?;
        Ok(Definition::Program { name, versions, number })
    }

    fn version(&mut self) -> Parsed<Version> {
        if !self.eat_word("version") {
            return self.wrong("`version`");
        }
        let name = self.name("the version's name")?;
        self.mark('{')?;
        let mut procedures = Vec::new();
        while procedures.is_empty() || !self.is_mark('}') {
            procedures.push(self.procedure()?);
            self.mark(';')?;
        }
        self.mark('}')?;
        self.mark('=')?;
        Ok(Version { name, procedures, number: self.value()? })
    }

    fn procedure(&mut self) -> Parsed<Procedure> {
        let result = self.result()?;
        let name = self.name("the procedure's name")?;
        self.mark('(')?;
        let mut arguments = Vec::new();
        if !self.is_mark(')') {
            arguments.push(self.argument()?);
            while self.eat(',') {
                arguments.push(self.argument()?);
            }
        }
        self.mark(')')?;
        self.mark('=')?;
        Ok(Procedure { name, arguments, result, number: self.value()? })
    }

    /// An argument's type, and its name if it has one.
    fn argument(&mut self) -> Parsed<Declaration> {
        let mut argument = self.result()?;
        if matches!(self.peek(), Token::Word(_)) {
            argument.name = self.name("a name")?;
            if matches!(argument.shape, Shape::Plain) {
                argument.shape = self.shape()?;
            }
        }
        Ok(argument)
    }

    fn result(&mut self) -> Parsed<Declaration> {
        let start = self.span();
        let spec = self.spec()?;
        let shape = if self.eat('*') { Shape::Optional } else { self.shape()? };
        Ok(self.anonymous(start, spec, shape))
    }

    fn anonymous(&self, start: Span, spec: Spec, shape: Shape) -> Declaration {
        let name = Spanned::new(String::new(), start);
        Declaration { name, spec, shape, span: self.since(start) }
    }
}
