//! An empty credential and an empty verifier (RFC 5531, section 10.1).

use xk_kit::rpc::onc::AUTH_HEAD_OCTETS;

/// Octets of credential and verifier.
pub const HEADER_OCTETS: usize = 2 * AUTH_HEAD_OCTETS;
/// Both, as they are sent.
pub const EMPTY: [u8; HEADER_OCTETS] = [0; HEADER_OCTETS];
