//! From octets to JSON. It is written as it is read: no value is built.

use super::{JSON_OCTETS_MAX, Path, SAFE_INTEGER, Step, octets};
use crate::json::JsonError;
use crate::model::{Field, Kind, Model, Type, Union};
use std::fmt::{Display, Write as _};
use xk_xdr::{DecodeError, Decoder, Xdr};

type Result<T = ()> = std::result::Result<T, JsonError>;

fn read<T: Xdr>(from: &mut Decoder<'_>, path: &Path<'_>) -> Result<T> {
    T::decode(from).map_err(|error| path.error(error.to_string()))
}

fn write(to: &mut String, value: impl Display) {
    // Writing to a string does not fail.
    let _ = write!(to, "{value}");
}

/// A string of JSON.
fn quoted(to: &mut String, text: &str) {
    write(to, serde_json::Value::from(text));
}

pub(super) fn value<'a>(
    model: &'a Model,
    ty: &'a Type,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    if to.len() > JSON_OCTETS_MAX {
        let what = format!("more than {JSON_OCTETS_MAX} octets of JSON");
        return Err(path.error(what));
    }
    let ty = model.resolve(ty);
    match ty {
        Type::Void => to.push_str("null"),
        Type::Int => write(to, read::<i32>(from, path)?),
        Type::Unsigned => write(to, read::<u32>(from, path)?),
        Type::Hyper => {
            let number: i64 = read(from, path)?;
            whole(to, number, number.unsigned_abs());
        }
        Type::UnsignedHyper => {
            let number: u64 = read(from, path)?;
            whole(to, number, number);
        }
        Type::Float => {
            let number: f32 = read(from, path)?;
            // With the digits that it needs as one of 32 bits.
            match number.is_finite() {
                true => write(to, format_args!("{number:?}")),
                false => floating(to, number.into()),
            }
        }
        Type::Double => floating(to, read(from, path)?),
        Type::Bool => write(to, read::<bool>(from, path)?),
        Type::Quadruple => opaque(from, 16, path, to)?,
        Type::FixedOpaque(len) => opaque(from, *len as usize, path, to)?,
        Type::Opaque(max) => {
            let len = length(from, *max, 1, path)?;
            opaque(from, len, path, to)?;
        }
        Type::Text(max) => text(from, *max, path, to)?,
        Type::Fixed(element, count) => {
            // Before anything is written for what is not there.
            if model.octets_min(ty) > from.left() as u64 {
                return Err(path.error(DecodeError::Truncated.to_string()));
            }
            elements(model, element, *count as usize, from, path, to)?;
        }
        Type::Array(element, max) => {
            let each = usize::try_from(model.octets_min(element)).unwrap_or(usize::MAX);
            let len = length(from, *max, each, path)?;
            elements(model, element, len, from, path, to)?;
        }
        Type::List(at) => {
            to.push('[');
            let mut place = 0;
            while read(from, path)? {
                comma(to, place);
                path.enter(Step::Element(place), |path| named(model, *at, from, path, to))?;
                place += 1;
            }
            to.push(']');
        }
        Type::Optional(inner) => optional(model, inner, from, path, to)?,
        Type::Named(at) => named(model, *at, from, path, to)?,
    }
    Ok(())
}

fn comma(to: &mut String, place: usize) {
    if place > 0 {
        to.push_str(", ");
    }
}

fn length(from: &mut Decoder<'_>, max: u32, each: usize, path: &Path<'_>) -> Result<usize> {
    let len = from.take_len(max, each);
    len.map_err(|error| path.error(error.to_string()))
}

/// Beyond what every reader of JSON holds exactly, in digits.
fn whole(to: &mut String, number: impl Display, size: u64) {
    match size <= SAFE_INTEGER {
        true => write(to, number),
        false => write(to, format_args!("\"{number}\"")),
    }
}

fn floating(to: &mut String, number: f64) {
    match serde_json::Number::from_f64(number) {
        Some(number) => write(to, number),
        None if number.is_nan() => to.push_str(r#""NaN""#),
        None if number > 0.0 => to.push_str(r#""Infinity""#),
        None => to.push_str(r#""-Infinity""#),
    }
}

fn taken(from: &mut Decoder<'_>, len: usize, path: &Path<'_>) -> Result<Vec<u8>> {
    let mut octets = Vec::new();
    from.append_padded(len, &mut octets).map_err(|error| path.error(error.to_string()))?;
    Ok(octets)
}

fn opaque(from: &mut Decoder<'_>, len: usize, path: &Path<'_>, to: &mut String) -> Result {
    let octets = taken(from, len, path)?;
    to.push('"');
    octets::write(&octets, to);
    to.push('"');
    Ok(())
}

fn text(from: &mut Decoder<'_>, max: u32, path: &Path<'_>, to: &mut String) -> Result {
    let len = length(from, max, 1, path)?;
    let octets = taken(from, len, path)?;
    match std::str::from_utf8(&octets) {
        Ok(text) => quoted(to, text),
        Err(_) => {
            to.push_str(r#"{"hex": ""#);
            octets::write(&octets, to);
            to.push_str("\"}");
        }
    }
    Ok(())
}

fn elements<'a>(
    model: &'a Model,
    element: &'a Type,
    len: usize,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    to.push('[');
    for at in 0..len {
        comma(to, at);
        path.enter(Step::Element(at), |path| value(model, element, from, path, to))?;
    }
    to.push(']');
    Ok(())
}

fn optional<'a>(
    model: &'a Model,
    inner: &'a Type,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    if !read::<bool>(from, path)? {
        to.push_str("null");
        return Ok(());
    }
    let wrapped = model.may_be_null(inner);
    if wrapped {
        to.push('[');
    }
    path.enter(Step::Field("*"), |path| value(model, inner, from, path, to))?;
    if wrapped {
        to.push(']');
    }
    Ok(())
}

fn named<'a>(
    model: &'a Model,
    at: usize,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    match model.types.get(at).map(|def| &def.kind) {
        Some(Kind::Enum(values)) => {
            let number: i32 = read(from, path)?;
            match values.iter().find(|(_, value)| *value == number) {
                Some((name, _)) => quoted(to, name),
                None => return Err(path.error(DecodeError::BadEnum(number).to_string())),
            }
        }
        Some(Kind::Struct { fields, .. }) => {
            to.push('{');
            for (place, field) in fields.iter().enumerate() {
                comma(to, place);
                component(model, field, from, path, to)?;
            }
            to.push('}');
        }
        Some(Kind::Union(union)) => chosen(model, union, from, path, to)?,
        Some(Kind::Alias(_)) | None => return Err(path.error("the type has no meaning")),
    }
    Ok(())
}

fn component<'a>(
    model: &'a Model,
    field: &'a Field,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    quoted(to, &field.name);
    to.push_str(": ");
    path.enter(Step::Field(&field.name), |path| value(model, &field.ty, from, path, to))
}

fn chosen<'a>(
    model: &'a Model,
    union: &'a Union,
    from: &mut Decoder<'_>,
    path: &mut Path<'a>,
    to: &mut String,
) -> Result {
    let mut ahead = from.clone();
    let number = match model.resolve(&union.discriminant.ty) {
        Type::Unsigned => i64::from(read::<u32>(&mut ahead, path)?),
        _ => i64::from(read::<i32>(&mut ahead, path)?),
    };
    to.push_str(r#"{"case": "#);
    path.enter(Step::Field("case"), |path| value(model, &union.discriminant.ty, from, path, to))?;
    let arm = union.arms.iter().find(|arm| arm.value == number);
    let field = match (arm, &union.default) {
        (Some(arm), _) => arm.field.as_ref(),
        (None, Some(default)) => default.as_ref(),
        (None, None) => {
            return Err(path.error(format!("the union has no arm for {number}")));
        }
    };
    if let Some(field) = field {
        to.push_str(", ");
        component(model, field, from, path, to)?;
    }
    to.push('}');
    Ok(())
}
