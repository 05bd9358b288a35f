//! From JSON to octets.

use super::{Path, Step, octets};
use crate::json::JsonError;
use crate::model::{Field, Kind, Model, Type, Union};
use serde_json::{Map, Value};
use xk_xdr::{Sink as _, Xdr as _};

type Result<T = ()> = std::result::Result<T, JsonError>;

/// What a person calls it.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            format!("the string {short:?}")
        }
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}

/// A value that there is a representation for, written. A vector takes all.
fn put(result: std::result::Result<(), xk_xdr::EncodeError>, path: &Path<'_>) -> Result {
    result.map_err(|error| path.error(error.to_string()))
}

pub(super) fn value<'a>(
    model: &'a Model,
    ty: &'a Type,
    value: &'a Value,
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    let ty = model.resolve(ty);
    match ty {
        Type::Void => match value {
            Value::Null => Ok(()),
            other => Err(path.wrong(describe(other), "null")),
        },
        Type::Int => put(whole::<i32>(value, path)?.encode(to), path),
        Type::Unsigned => put(whole::<u32>(value, path)?.encode(to), path),
        Type::Hyper => put(whole::<i64>(value, path)?.encode(to), path),
        Type::UnsignedHyper => put(whole::<u64>(value, path)?.encode(to), path),
        Type::Float => put(single(value, path)?.encode(to), path),
        Type::Double => put(floating(value, path)?.encode(to), path),
        Type::Bool => match value {
            Value::Bool(value) => put(value.encode(to), path),
            other => Err(path.wrong(describe(other), "true or false")),
        },
        Type::Quadruple => fixed_octets(value, 16, path, to),
        Type::FixedOpaque(len) => fixed_octets(value, *len as usize, path, to),
        Type::Opaque(max) => {
            let octets = opaque(value, path)?;
            bounded(octets.len(), *max, "octets", path)?;
            put(to.put_len(octets.len(), *max), path)?;
            put(to.put_padded(&octets), path)
        }
        Type::Text(max) => {
            let octets = match value {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Object(_) => opaque(value, path)?,
                other => return Err(path.wrong(describe(other), "a string")),
            };
            bounded(octets.len(), *max, "octets", path)?;
            put(to.put_len(octets.len(), *max), path)?;
            put(to.put_padded(&octets), path)
        }
        Type::Fixed(element, count) => {
            let items = array(value, path)?;
            if items.len() != *count as usize {
                return Err(path.wrong(describe(value), format!("an array of {count}")));
            }
            elements(model, element, items, path, to)
        }
        Type::Array(element, max) => {
            let items = array(value, path)?;
            bounded(items.len(), *max, "elements", path)?;
            put(to.put_len(items.len(), *max), path)?;
            elements(model, element, items, path, to)
        }
        Type::List(at) => {
            for (place, item) in array(value, path)?.iter().enumerate() {
                put(true.encode(to), path)?;
                path.enter(Step::Element(place), |path| named(model, *at, item, path, to))?;
            }
            put(false.encode(to), path)
        }
        Type::Optional(inner) => optional(model, inner, value, path, to),
        Type::Named(at) => named(model, *at, value, path, to),
    }
}

fn optional<'a>(
    model: &'a Model,
    inner: &'a Type,
    value: &'a Value,
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    put((!value.is_null()).encode(to), path)?;
    if value.is_null() {
        return Ok(());
    }
    if !model.may_be_null(inner) {
        return path
            .enter(Step::Field("*"), |path| super::encode::value(model, inner, value, path, to));
    }
    match array(value, path)? {
        [only] => {
            path.enter(Step::Element(0), |path| super::encode::value(model, inner, only, path, to))
        }
        _ => Err(path.wrong(describe(value), "null, or an array of one")),
    }
}

fn named<'a>(
    model: &'a Model,
    at: usize,
    value: &'a Value,
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    match model.types.get(at).map(|def| &def.kind) {
        Some(Kind::Enum(values)) => {
            let number = enumerated(values, value, path)?;
            put(number.encode(to), path)
        }
        Some(Kind::Struct { fields, .. }) => {
            let object = object(value, path)?;
            only_known(object, path, &|name| fields.iter().any(|f| f.name == name), || {
                fields.iter().map(|f| f.name.as_str()).collect()
            })?;
            for field in fields {
                component(model, field, object, path, to)?;
            }
            Ok(())
        }
        Some(Kind::Union(union)) => chosen(model, union, value, path, to),
        Some(Kind::Alias(_)) | None => Err(path.error("the type has no meaning")),
    }
}

fn component<'a>(
    model: &'a Model,
    field: &'a Field,
    object: &'a Map<String, Value>,
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    static NULL: Value = Value::Null;
    let given = match object.get(&field.name) {
        Some(given) => given,
        // What may be absent may be left out.
        None if model.may_be_null(&field.ty) => &NULL,
        None => {
            let expected = format!("it, of the type `{}`", model.describe(&field.ty));
            return Err(path.wrong(format!("`{}` is missing", field.name), expected));
        }
    };
    path.enter(Step::Field(&field.name), |path| value(model, &field.ty, given, path, to))
}

fn only_known<'n>(
    object: &Map<String, Value>,
    path: &Path<'_>,
    is_known: &dyn Fn(&str) -> bool,
    known: impl Fn() -> Vec<&'n str>,
) -> Result {
    let Some(odd) = object.keys().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let known = known();
    let what = format!("there is no component `{odd}`");
    Err(match xk_lang::nearest(odd, known.iter().copied()) {
        Some(near) => path.wrong(what, format!("`{near}`")),
        None => path.wrong(what, known.join(", ")),
    })
}

fn chosen<'a>(
    model: &'a Model,
    union: &'a Union,
    given: &'a Value,
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    let object = object(given, path)?;
    let Some(case) = object.get("case") else {
        let expected = r#"{"case": ..., ...}"#;
        return Err(path.wrong("`case` is missing, which decides the union", expected));
    };
    let start = to.len();
    path.enter(Step::Field("case"), |path| value(model, &union.discriminant.ty, case, path, to))?;
    let word: [u8; 4] =
        to.get(start..).and_then(|octets| octets.first_chunk().copied()).unwrap_or_default();
    let number = match model.resolve(&union.discriminant.ty) {
        Type::Unsigned => i64::from(u32::from_be_bytes(word)),
        _ => i64::from(i32::from_be_bytes(word)),
    };
    let arm = union.arms.iter().find(|arm| arm.value == number);
    let field = match (arm, &union.default) {
        (Some(arm), _) => arm.field.as_ref(),
        (None, Some(default)) => default.as_ref(),
        (None, None) => {
            let labels: Vec<_> = union.arms.iter().map(|arm| arm.label.as_str()).collect();
            return Err(path.wrong(
                format!("the union has nothing for {}", describe(case)),
                labels.join(", "),
            ));
        }
    };
    let name = field.map(|field| field.name.as_str());
    only_known(object, path, &|key| key == "case" || Some(key) == name, || {
        std::iter::once("case").chain(name).collect()
    })?;
    match field {
        Some(field) => component(model, field, object, path, to),
        None => Ok(()),
    }
}

fn enumerated(values: &[(String, i32)], value: &Value, path: &Path<'_>) -> Result<i32> {
    let found = match value {
        Value::String(typed) => values.iter().find(|(name, _)| name == typed),
        Value::Number(number) => {
            values.iter().find(|(_, value)| number.as_i64() == Some((*value).into()))
        }
        _ => None,
    };
    if let Some((_, number)) = found {
        return Ok(*number);
    }
    let names: Vec<_> = values.iter().map(|(name, _)| name.as_str()).collect();
    let near = value.as_str().and_then(|typed| xk_lang::nearest(typed, names.iter().copied()));
    let expected = match near {
        Some(near) => format!("perhaps `{near}`"),
        None => format!("one of {}", names.join(", ")),
    };
    Err(path.wrong(describe(value), expected))
}

/// A whole number that fits, or its digits in a string.
fn whole<T: TryFrom<i128>>(value: &Value, path: &Path<'_>) -> Result<T> {
    let number = match value {
        Value::Number(number) => {
            number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
        }
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    };
    number.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        let bits = size_of::<T>() * 8;
        let sign = if T::try_from(-1).is_ok() { " with a sign" } else { ", not negative" };
        path.wrong(describe(value), format!("a whole number of {bits} bits{sign}"))
    })
}

fn floating(value: &Value, path: &Path<'_>) -> Result<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    };
    let expected = r#"a number, "NaN", "Infinity" or "-Infinity""#;
    number.ok_or_else(|| path.wrong(describe(value), expected))
}

/// The nearest number of 32 bits, if there is one.
fn single(value: &Value, path: &Path<'_>) -> Result<f32> {
    let number = floating(value, path)?;
    #[allow(clippy::cast_possible_truncation, reason = "the nearest is what is meant")]
    let nearest = number as f32;
    if nearest.is_infinite() && number.is_finite() {
        let expected = "a number of 32 bits, at most 3.4028235e38";
        return Err(path.wrong(describe(value), expected));
    }
    Ok(nearest)
}

fn opaque(value: &Value, path: &Path<'_>) -> Result<Vec<u8>> {
    let expected = r#"a string of hexadecimal digits, {"base64": "..."} or {"text": "..."}"#;
    octets::read(value).ok_or_else(|| path.wrong(describe(value), expected))
}

fn fixed_octets(value: &Value, len: usize, path: &Path<'_>, to: &mut Vec<u8>) -> Result {
    let octets = opaque(value, path)?;
    if octets.len() != len {
        let what = format!("{} octets", octets.len());
        return Err(path.wrong(what, format!("{len} octets, two hexadecimal digits each")));
    }
    put(to.put_padded(&octets), path)
}

fn bounded(len: usize, max: u32, what: &str, path: &Path<'_>) -> Result {
    if len <= max as usize {
        return Ok(());
    }
    Err(path.wrong(format!("{len} {what}"), format!("at most {max}")))
}

fn array<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a [Value]> {
    let items = value.as_array().map(Vec::as_slice);
    items.ok_or_else(|| path.wrong(describe(value), "an array"))
}

fn object<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a Map<String, Value>> {
    let object = value.as_object();
    object.ok_or_else(|| path.wrong(describe(value), "an object"))
}

fn elements<'a>(
    model: &'a Model,
    element: &'a Type,
    items: &'a [Value],
    path: &mut Path<'a>,
    to: &mut Vec<u8>,
) -> Result {
    for (at, item) in items.iter().enumerate() {
        path.enter(Step::Element(at), |path| value(model, element, item, path, to))?;
    }
    Ok(())
}
