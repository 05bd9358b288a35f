//! Files of the RPC language, and values of their types: any octets in, no panic, and some laws
//! hold.

use xk_rpcgen::{Model, Options, Procedure, compile, to_rust};

/// Reads `data` as a file of the language and does with it all that can be done.
///
/// # Panics
/// When a law is broken: a mistake lies outside the text, or what is read from octets is not
/// written as the same.
pub(crate) fn file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match compile("fuzz.x", &text) {
        Err(found) => {
            assert!(found.has_errors());
            for diagnostic in found.sorted() {
                assert!(diagnostic.span.end() <= text.len(), "{diagnostic:?}");
            }
            assert!(!found.to_text().is_empty());
        }
        Ok(compiled) => {
            let rust = to_rust(&compiled.model, &Options::default());
            assert!(rust.ends_with('\n'));
            for procedure in procedures(&compiled.model) {
                values(&compiled.model, procedure, data);
            }
        }
    }
}

/// Feeds octets to the types of this text.
///
/// # Panics
/// As for [`file`], or if the text has mistakes.
pub(crate) fn all_values(text: &str, data: &[u8]) {
    let Ok(compiled) = compile("fuzz.x", text) else {
        panic!("the text has mistakes");
    };
    for procedure in procedures(&compiled.model) {
        values(&compiled.model, procedure, data);
    }
}

fn procedures(model: &Model) -> impl Iterator<Item = &Procedure> {
    let versions = model.programs.iter().flat_map(|p| &p.versions);
    versions.flat_map(|v| &v.procedures).take(64)
}

/// The front of `data` as a result: what is read is written as the same octets again.
fn values(model: &Model, procedure: &Procedure, data: &[u8]) {
    for len in (0..=data.len().min(64)).step_by(4) {
        let Ok(json) = model.decode_result(procedure, &data[..len]) else {
            continue;
        };
        // What is nested deeper than JSON's reader goes is not read.
        let Ok(value) = serde_json::from_str(&json) else {
            continue;
        };
        let Ok(octets) = model.encode(&procedure.result, &value, "result") else {
            panic!("what was read is not taken: {json}");
        };
        assert_eq!(octets.len(), len, "{json}");
        let again = model.decode_result(procedure, &octets);
        assert_eq!(again.as_deref(), Ok(json.as_str()));
    }
}
