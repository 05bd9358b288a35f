//! Parameters: what a graph gives against what an entry allows.

use xk_core::Participant;
use xk_core::graph::{BlockSpec, DURATION_MAX, ParamKind, ParamSpec, Params, Value};
use xk_core::participant::{PEERS_MAX, ParseError, pieces};
use xk_lang::{Diagnostics, Param, ParamBlock, Span, Spanned, Value as Written};

/// Something that takes parameters: a node or a link.
pub(crate) struct Parametrized<'a> {
    /// Name in messages: "`ip`".
    pub(crate) what: &'a str,
    /// Place of its name in the file.
    pub(crate) span: Span,
    /// The properties it may have.
    pub(crate) scalars: &'static [ParamSpec],
    /// The children it may have.
    pub(crate) blocks: &'static [BlockSpec],
}

impl Parametrized<'_> {
    /// Checks everything that is given, fills in what is not, and reports each mistake at its
    /// place.
    pub(crate) fn take(
        &self,
        diagnostics: &mut Diagnostics,
        properties: &[Param],
        children: &[ParamBlock],
    ) -> Params {
        let mut params = Params::default();
        for property in properties {
            match self.scalars.iter().find(|spec| spec.name == *property.name) {
                Some(spec) => {
                    if let Some(value) = convert(diagnostics, &spec.kind, &property.value) {
                        params.set(spec.name, value);
                    }
                }
                None => self.unknown_property(diagnostics, property),
            }
        }
        self.exclusions(diagnostics, properties);
        let given = |name: &str| properties.iter().any(|p| *p.name == name);
        complete(diagnostics, self.what, self.span, self.scalars, given, &mut params);
        for child in children {
            match self.blocks.iter().find(|spec| spec.name == *child.name) {
                Some(spec) => params.add_block(spec.name, block(diagnostics, spec, child)),
                None => self.unknown_block(diagnostics, child),
            }
        }
        // One that is given as a property has been told of.
        for spec in self.blocks.iter().filter(|spec| !given(spec.name)) {
            self.count(diagnostics, spec, children);
        }
        params
    }

    /// Refuses parameters that one beside them stands for.
    fn exclusions(&self, diagnostics: &mut Diagnostics, properties: &[Param]) {
        for property in properties {
            let name = property.name.as_str();
            let spec = self.scalars.iter().find(|spec| spec.name == name);
            let others = spec.map_or(&[][..], |spec| spec.instead_of);
            for other in properties.iter().filter(|p| others.contains(&p.name.as_str())) {
                let what = format!("`{}` cannot be given beside `{name}`", other.name.as_str());
                diagnostics
                    .error(other.name.span, what)
                    .also(property.name.span, format!("`{name}`"))
                    .help("leave one of them out");
            }
        }
    }

    fn unknown_property(&self, diagnostics: &mut Diagnostics, property: &Param) {
        let name = property.name.as_str();
        let what = format!("{} has no parameter `{name}`", self.what);
        let found = diagnostics.error(property.name.span, what);
        if self.blocks.iter().any(|spec| spec.name == name) {
            found.help(format!("write it in braces: `{{ {name} {} }}`", property.value.value));
            return;
        }
        found.expected(self.known());
        let scalars = self.scalars.iter().map(|spec| spec.name);
        let blocks = self.blocks.iter().map(|spec| spec.name);
        found.suggest(name, scalars.chain(blocks));
    }

    fn unknown_block(&self, diagnostics: &mut Diagnostics, child: &ParamBlock) {
        let name = child.name.as_str();
        let what = format!("{} has no block `{name}`", self.what);
        let found = diagnostics.error(child.name.span, what);
        if self.scalars.iter().any(|spec| spec.name == name) {
            let value = child.args.first().map_or("...".into(), |v| v.to_string());
            found.help(format!("write it as a property, before the braces: `{name}={value}`"));
            return;
        }
        found.expected(self.known());
        found.suggest(name, self.blocks.iter().map(|spec| spec.name));
    }

    /// Lists its parameters, for messages.
    fn known(&self) -> String {
        let list = |names: Vec<&str>| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>();
        let scalars = list(self.scalars.iter().map(|spec| spec.name).collect());
        let blocks = list(self.blocks.iter().map(|spec| spec.name).collect());
        match (scalars.is_empty(), blocks.is_empty()) {
            (true, true) => "no parameters at all".into(),
            (false, true) => format!("one of {}", scalars.join(", ")),
            (true, false) => format!("one of the blocks {}", blocks.join(", ")),
            (false, false) => {
                format!("one of {}, or one of the blocks {}", scalars.join(", "), blocks.join(", "))
            }
        }
    }

    fn count(&self, diagnostics: &mut Diagnostics, spec: &BlockSpec, children: &[ParamBlock]) {
        let mut given = children.iter().filter(|child| *child.name == spec.name);
        let count = given.clone().count();
        if count < spec.min {
            let what = format!("{} needs the block `{}`", self.what, spec.name);
            diagnostics.error(self.span, what).expected(format!(
                "{} `{}`: {}",
                at_least(spec.min),
                form(spec),
                spec.doc
            ));
        } else if count > spec.max
            && let Some(surplus) = given.nth(spec.max)
        {
            let what = format!("too many blocks `{}`", spec.name);
            diagnostics.error(surplus.span, what).expected(format!("at most {}", spec.max));
        }
    }
}

fn at_least(min: usize) -> String {
    if min == 1 { "at least one".into() } else { format!("at least {min}") }
}

/// Form of a block: `route ... via=...`.
fn form(spec: &BlockSpec) -> String {
    let mut form = spec.name.to_string();
    for argument in spec.arguments {
        form += &format!(" {}", argument.name.to_uppercase());
    }
    for property in spec.properties {
        form += &format!(" {}=...", property.name);
    }
    form
}

/// Fills in defaults, and reports what must be given and is not.
fn complete(
    diagnostics: &mut Diagnostics,
    what: &str,
    span: Span,
    specs: &'static [ParamSpec],
    given: impl Fn(&str) -> bool,
    params: &mut Params,
) {
    let replaced = |name| specs.iter().any(|s| s.instead_of.contains(&name) && given(s.name));
    for spec in specs.iter().filter(|spec| !given(spec.name) && !replaced(spec.name)) {
        if spec.required {
            diagnostics
                .error(span, format!("{what} needs the parameter `{}`", spec.name))
                .expected(format!("`{}=...`, {}: {}", spec.name, wanted(&spec.kind), spec.doc));
        } else if let Some(value) = spec.default {
            params.set(spec.name, value.into());
        }
    }
}

/// Form of a value of this type, for messages.
fn wanted(kind: &ParamKind) -> String {
    match kind {
        ParamKind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        ParamKind::Duration { .. } => "a time like \"1ms\"".into(),
        ParamKind::Rate => "a rate like \"100Mbit\"".into(),
        ParamKind::Fraction => "a part like \"5%\"".into(),
        ParamKind::Octets => "a size in octets like 1500 or \"64KiB\"".into(),
        ParamKind::Bool => "`#true` or `#false`".into(),
        ParamKind::Text(form) => (*form).into(),
        ParamKind::Participant(such) => format!("a participant, such as {such}"),
        ParamKind::Peers(such) => {
            format!("a participant, such as {such}, or several with commas between")
        }
        ParamKind::Word(words) => words.join(", "),
    }
}

/// A written value as the type that is wanted, or an error at its place.
fn convert(
    diagnostics: &mut Diagnostics,
    kind: &ParamKind,
    value: &Spanned<Written>,
) -> Option<Value> {
    match kind {
        ParamKind::Integer { min, max } => {
            value.integer(diagnostics, *min..=*max).map(Value::Integer)
        }
        ParamKind::Duration { min } => {
            value.duration(diagnostics, *min..=DURATION_MAX).map(Value::Duration)
        }
        ParamKind::Rate => value.rate(diagnostics).map(Value::Rate),
        ParamKind::Fraction => value.fraction(diagnostics).map(Value::Fraction),
        ParamKind::Octets => value.octets(diagnostics).map(Value::Octets),
        ParamKind::Bool => value.boolean(diagnostics).map(Value::Bool),
        ParamKind::Text(form) => match &value.value {
            // A user or a port is text that may be all digits, which need no quotes.
            Written::Integer(number) => Some(Value::Text(number.to_string())),
            _ => value.by(diagnostics, form, |text| Some(text.to_string())).map(Value::Text),
        },
        ParamKind::Participant(_) => participants(diagnostics, kind, 1, value),
        ParamKind::Peers(_) => participants(diagnostics, kind, PEERS_MAX, value),
        ParamKind::Word(words) => {
            let choices: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
            value.choice(diagnostics, &choices).map(|word| Value::Text(word.into()))
        }
    }
}

/// The text of a participant, or of up to `most`: each that is wrong is reported at its own place.
fn participants(
    diagnostics: &mut Diagnostics,
    kind: &ParamKind,
    most: usize,
    value: &Spanned<Written>,
) -> Option<Value> {
    let expected = wanted(kind);
    let text = value.by(diagnostics, &expected, |text| Some(text.to_string()))?;
    let pieces: Vec<&str> = pieces(&text).collect();
    let place = |piece: &str| place_in(diagnostics.source(), value.span, &text, piece);
    let places: Vec<Span> = match pieces.len() {
        1 => vec![value.span],
        _ => pieces.iter().map(|piece| place(piece)).collect(),
    };
    if let Some(surplus) = places.get(most) {
        let what = match most {
            1 => "one participant is taken here, not several".into(),
            _ => format!("more than {most} peers"),
        };
        diagnostics.error(*surplus, what).expected(expected);
        return None;
    }
    let mut is_sound = true;
    for (at, (piece, place)) in pieces.iter().zip(&places).enumerate() {
        let wrong = match piece.parse::<Participant>() {
            Ok(_) if piece.is_empty() && most > 1 && pieces.len() > 1 => ParseError::Empty,
            Ok(_) => match pieces.iter().position(|other| other == piece) {
                Some(first) if first < at => {
                    let what = format!("the peer `{piece}` is named twice");
                    diagnostics.error(*place, what).also(places[first], "the first time");
                    is_sound = false;
                    continue;
                }
                _ => continue,
            },
            Err(wrong) => wrong,
        };
        is_sound = false;
        let what = format!("{} does not fit here", Written::from(*piece).described());
        let error = diagnostics.error(*place, what);
        error.expected(expected.as_str());
        match wrong {
            ParseError::Form => {}
            ParseError::Socket(_) => drop(error.help(wrong.to_string())),
            _ => drop(error.label(wrong.to_string())),
        }
    }
    is_sound.then_some(Value::Text(text))
}

/// The place of a part of a text that is written at `span`: that of the whole text if it is not
/// written as it reads.
fn place_in(source: &str, span: Span, text: &str, part: &str) -> Span {
    let within = part.as_ptr() as usize - text.as_ptr() as usize;
    match span.of(source).find(text) {
        Some(start) => Span::new(span.offset + start + within, part.len()),
        None => span,
    }
}

/// A block's arguments and properties.
fn block(diagnostics: &mut Diagnostics, spec: &BlockSpec, child: &ParamBlock) -> Params {
    let mut params = Params::default();
    let what = format!("`{}`", spec.name);
    for (at, argument) in spec.arguments.iter().enumerate() {
        match child.args.get(at) {
            Some(value) => {
                if let Some(value) = convert(diagnostics, &argument.kind, value) {
                    params.set(argument.name, value);
                }
            }
            None if argument.required => {
                let kind = wanted(&argument.kind);
                diagnostics
                    .error(child.name.span, format!("{what} lacks its value"))
                    .expected(format!("{kind}: {}", argument.doc))
                    .help(format!("the form is `{}`", form(spec)));
            }
            None => {
                if let Some(value) = argument.default {
                    params.set(argument.name, value.into());
                }
            }
        }
    }
    if let Some(surplus) = child.args.get(spec.arguments.len()) {
        diagnostics
            .error(surplus.span, format!("{what} takes no further value"))
            .help(format!("the form is `{}`", form(spec)));
    }
    for inner in &child.children {
        diagnostics.error(inner.span, format!("{what} has no blocks of its own"));
    }
    let own =
        Parametrized { what: &what, span: child.name.span, scalars: spec.properties, blocks: &[] };
    let named = own.take(diagnostics, &child.params, &[]);
    for property in spec.properties {
        if let Some(value) = named.get(property.name) {
            params.set(property.name, value.clone());
        }
    }
    params
}
