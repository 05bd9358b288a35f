//! Linked lists: structures whose last component is the next one of their kind, and which are
//! mentioned as optional data alone. They are lists, then, however long, and no code recurses over
//! them (RFC 4506, section 8).

use super::Checker;
use crate::model::{Field, Kind, Model, Type};
use std::collections::HashSet;

impl Checker<'_> {
    pub(super) fn find_lists(&mut self) {
        let mut nodes: HashSet<usize> =
            (0..self.model.types.len()).filter(|at| is_linked(&self.model, *at)).collect();
        if nodes.is_empty() {
            return;
        }
        each_type(&mut self.model, &mut |ty| disqualify(ty, &mut nodes));
        each_type(&mut self.model, &mut |ty| relate(ty, &nodes));
        for at in nodes {
            if let Some(Kind::Struct { fields, is_node }) =
                self.model.types.get_mut(at).map(|def| &mut def.kind)
            {
                fields.pop();
                *is_node = true;
            }
        }
    }
}

/// Whether the last component is the next one of the kind.
fn is_linked(model: &Model, at: usize) -> bool {
    let Some(Kind::Struct { fields, .. }) = model.types.get(at).map(|def| &def.kind) else {
        return false;
    };
    let last = fields.last().map(|field| model.resolve(&field.ty));
    matches!(last, Some(Type::Optional(next)) if **next == Type::Named(at))
}

/// Shows all types of the model.
fn each_type(model: &mut Model, show: &mut dyn FnMut(&mut Type)) {
    let of_field = |field: Option<&mut Field>, show: &mut dyn FnMut(&mut Type)| {
        if let Some(field) = field {
            show(&mut field.ty);
        }
    };
    for def in &mut model.types {
        match &mut def.kind {
            Kind::Alias(ty) => show(ty),
            Kind::Enum(_) => {}
            Kind::Struct { fields, .. } => fields.iter_mut().for_each(|f| show(&mut f.ty)),
            Kind::Union(union) => {
                for arm in &mut union.arms {
                    of_field(arm.field.as_mut(), show);
                }
                of_field(union.default.as_mut().and_then(Option::as_mut), show);
            }
        }
    }
    let versions = model.programs.iter_mut().flat_map(|p| &mut p.versions);
    for procedure in versions.flat_map(|v| &mut v.procedures) {
        procedure.arguments.iter_mut().for_each(&mut *show);
        show(&mut procedure.result);
    }
}

/// A type that is there by value is no node alone.
fn disqualify(ty: &mut Type, nodes: &mut HashSet<usize>) {
    match ty {
        Type::Named(at) => {
            nodes.remove(at);
        }
        Type::Optional(inner) if matches!(**inner, Type::Named(_)) => {}
        Type::Optional(inner) | Type::Fixed(inner, _) | Type::Array(inner, _) => {
            disqualify(inner, nodes);
        }
        _ => {}
    }
}

/// Optional nodes are lists.
fn relate(ty: &mut Type, nodes: &HashSet<usize>) {
    match ty {
        Type::Optional(inner) => match **inner {
            Type::Named(at) if nodes.contains(&at) => *ty = Type::List(at),
            _ => relate(inner, nodes),
        },
        Type::Fixed(inner, _) | Type::Array(inner, _) => relate(inner, nodes),
        _ => {}
    }
}
