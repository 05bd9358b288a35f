//! Types that contain themselves: only through optional data and arrays of any length, which may be
//! empty (RFC 4506, sections 4.13 and 4.19). And what decides a union.

use super::Checker;
use crate::model::{Kind, Model, Type, Union};
use xk_lang::Span;

/// Largest depth of types within types, without those that may be absent.
const DEPTH_MAX: usize = 128;

/// Place of a union in the file.
pub(super) struct UnionPlace {
    pub(super) name: String,
    pub(super) discriminant: Span,
    /// One for each arm.
    pub(super) cases: Vec<Span>,
}

/// Calls `each` for the types that a type needs to be there.
fn by_value(ty: &Type, each: &mut dyn FnMut(usize)) {
    match ty {
        Type::Named(at) => each(*at),
        Type::Fixed(element, _) => by_value(element, each),
        _ => {}
    }
}

/// Calls `each` for the types that a type mentions.
fn mentioned(ty: &Type, each: &mut dyn FnMut(usize)) {
    match ty {
        Type::Named(at) => each(*at),
        Type::Fixed(inner, _) | Type::Array(inner, _) | Type::Optional(inner) => {
            mentioned(inner, each);
        }
        _ => {}
    }
}

fn needs(kind: &Kind) -> Vec<usize> {
    let mut all = Vec::new();
    let mut each = |at| all.push(at);
    match kind {
        Kind::Alias(ty) => by_value(ty, &mut each),
        Kind::Enum(_) => {}
        Kind::Struct { fields, .. } => fields.iter().for_each(|f| by_value(&f.ty, &mut each)),
        Kind::Union(union) => {
            by_value(&union.discriminant.ty, &mut each);
            let arms = union.arms.iter().filter_map(|arm| arm.field.as_ref());
            let default = union.default.iter().flatten();
            arms.chain(default).for_each(|field| by_value(&field.ty, &mut each));
        }
    }
    all
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Never,
    /// On the way to where we are.
    Open,
    Done,
}

impl Checker<'_> {
    /// Another name for something that is made of this very name is a name for nothing.
    pub(super) fn check_aliases(&mut self) {
        let edges = |kind: &Kind| {
            let mut all = Vec::new();
            if let Kind::Alias(ty) = kind {
                mentioned(ty, &mut |at| all.push(at));
            }
            all
        };
        let help = "put what repeats into a structure";
        self.order(edges, "is another name for itself", help);
    }

    /// A type that is always within itself has no end.
    pub(super) fn check_by_value(&mut self) {
        let help = "let it be absent: `T *x`, or `T x<>`";
        self.order = self.order(needs, "contains itself, without an end", help);
        if !self.found.has_errors() {
            self.check_discriminants();
        }
    }

    /// The types, each behind those that it has edges to, of which none leads back to it.
    fn order(&mut self, edges: impl Fn(&Kind) -> Vec<usize>, what: &str, help: &str) -> Vec<usize> {
        let count = self.model.types.len();
        let (mut seen, mut order) = (vec![Seen::Never; count], Vec::with_capacity(count));
        // How many lie within each other below it.
        let mut depth = vec![0; count];
        for start in 0..count {
            if seen[start] != Seen::Never {
                continue;
            }
            seen[start] = Seen::Open;
            let mut way = vec![(start, edges(&self.model.types[start].kind))];
            while let Some((at, left)) = way.last_mut() {
                let at = *at;
                let Some(next) = left.pop() else {
                    seen[at] = Seen::Done;
                    order.push(at);
                    way.pop();
                    if depth[at] == DEPTH_MAX {
                        let text = format!("more than {DEPTH_MAX} types within each other");
                        self.found.error(self.places[at], text);
                    }
                    if let Some((above, _)) = way.last() {
                        depth[*above] = depth[*above].max(depth[at] + 1);
                    }
                    continue;
                };
                match seen.get(next).copied() {
                    Some(Seen::Open) => self.endless(at, next, what, help),
                    Some(Seen::Never) => {
                        seen[next] = Seen::Open;
                        way.push((next, edges(&self.model.types[next].kind)));
                    }
                    Some(Seen::Done) => depth[at] = depth[at].max(depth[next] + 1),
                    None => {}
                }
            }
        }
        order
    }

    fn endless(&mut self, at: usize, again: usize, what: &str, help: &str) {
        let name = self.model.types[again].name.clone();
        let through = self.model.types[at].name.clone();
        let error = self.found.error(self.places[again], format!("`{name}` {what}")).help(help);
        if at != again {
            error.also(self.places[at], format!("by way of `{through}`"));
        }
        // Following names comes to an end.
        if let Kind::Alias(ty) = &mut self.model.types[again].kind {
            *ty = Type::Void;
        }
    }

    /// RFC 4506, section 6.4, note 5.
    fn check_discriminants(&mut self) {
        for place in std::mem::take(&mut self.unions) {
            let def = self.model.types.iter().find(|def| def.name == place.name);
            let Some(Kind::Union(Union { discriminant, arms, .. })) = def.map(|def| &def.kind)
            else {
                continue;
            };
            let name = self.model.describe(&discriminant.ty);
            let Some((fits, expected)) = legal(&self.model, &discriminant.ty) else {
                self.found
                    .error(place.discriminant, format!("`{name}` cannot decide a union"))
                    .expected("`int`, `unsigned int`, `bool` or an enumeration");
                continue;
            };
            for (arm, span) in arms.iter().zip(&place.cases).filter(|(arm, _)| !fits(arm.value)) {
                let what = format!("`{}` is no value of `{name}`", arm.label);
                self.found.error(*span, what).expected(expected.clone());
            }
        }
    }
}

type Fits = Box<dyn Fn(i64) -> bool>;

/// Values that a discriminant may have.
fn legal(model: &Model, ty: &Type) -> Option<(Fits, String)> {
    match model.resolve(ty) {
        Type::Int => Some((
            Box::new(|value| i32::try_from(value).is_ok()),
            "a number of 32 bits with a sign".into(),
        )),
        Type::Unsigned => Some((
            Box::new(|value| u32::try_from(value).is_ok()),
            "a number from 0 to 4294967295".into(),
        )),
        Type::Bool => Some((Box::new(|value| matches!(value, 0 | 1)), "`TRUE` or `FALSE`".into())),
        ty => match model.kind(ty).map(|def| &def.kind) {
            Some(Kind::Enum(values)) => {
                let numbers: Vec<i64> = values.iter().map(|(_, v)| (*v).into()).collect();
                let names: Vec<_> = values.iter().take(8).map(|(n, _)| n.as_str()).collect();
                let more = if values.len() > 8 { ", ..." } else { "" };
                let expected = format!("one of {}{more}", names.join(", "));
                Some((Box::new(move |value| numbers.contains(&value)), expected))
            }
            _ => None,
        },
    }
}
