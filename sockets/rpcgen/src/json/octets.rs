//! Octets as text.

use serde_json::Value;
use std::fmt::Write as _;

/// Octets in one of the forms that are taken.
pub(super) fn read(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(digits) => hexadecimal(digits),
        Value::Object(object) if object.len() == 1 => {
            let (form, text) = object.iter().next()?;
            let text = text.as_str()?;
            match form.as_str() {
                "hex" => hexadecimal(text),
                "base64" => base64(text),
                "text" => Some(text.into()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns octets as the text that they are, if a person can read it.
pub(super) fn as_text(octets: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(octets).ok()?;
    let is_read = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    (!text.is_empty() && text.chars().all(is_read)).then_some(text)
}

/// Two digits for each octet.
pub(super) fn write(octets: &[u8], to: &mut String) {
    for octet in octets {
        // Writing to a string does not fail.
        let _ = write!(to, "{octet:02x}");
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let [high, low] = pair else { return None };
        u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
    };
    digits.chunks(2).map(pair).collect()
}

/// RFC 4648, section 4, or section 5 with its other two letters; the padding may be missing.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // What is left over belongs to no octet.
    (count < 6 && bits == 0).then_some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_forms() {
        assert_eq!(read(&json!("00ffA5")), Some(vec![0, 0xff, 0xa5]));
        assert_eq!(read(&json!("00f")), None);
        assert_eq!(read(&json!("0x00")), None);
        assert_eq!(read(&json!({"text": "hé"})), Some("hé".into()));
        assert_eq!(read(&json!({"hex": "6869"})), Some(b"hi".to_vec()));
        assert_eq!(as_text("h\u{e9}\n".as_bytes()), Some("h\u{e9}\n"));
        for none in [&b""[..], b"h\0", b"\xff", b"\x1b[2J"] {
            assert_eq!(as_text(none), None);
        }
        for (text, octets) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYmFy", b"foobar"),
            ("+/-_", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(read(&json!({"base64": text})).as_deref(), Some(octets));
        }
        assert_eq!(read(&json!({"base64": "Z"})), None);
        assert_eq!(read(&json!({"base64": "Zh=="})), None);
        assert_eq!(read(&json!({"base64": "Z*"})), None);
        assert_eq!(read(&json!({"base64": "", "hex": ""})), None);
    }
}
