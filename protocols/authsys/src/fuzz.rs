//! The fuzz target of the codec: what parses must come out again as it went in, but for padding.

use crate::wire::Credential;

/// Parses `data` as the body of a credential, writes it again, reads that and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(credential) = Credential::parse(data) else {
        return;
    };
    let body = credential.body();
    assert_eq!(body.len(), data.len(), "the length changed");
    assert_eq!(Credential::parse(&body), Ok(credential), "it changed");
}
