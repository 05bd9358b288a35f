//! AUTH_SYS: the codec.

use xk_auth::authsys::wire::Credential;

/// Parses `data` as the body of a credential, writes it again, reads that and compares: only
/// padding may differ.
pub(crate) fn wire(data: &[u8]) {
    let Ok(credential) = Credential::parse(data) else {
        return;
    };
    let body = credential.body();
    assert_eq!(body.len(), data.len(), "the length changed");
    assert_eq!(Credential::parse(&body), Ok(credential), "it changed");
}
