//! The header, which is [`xk_appletalk::atp::Header`], on messages.

use xk_appletalk::atp::{HEADER_OCTETS as OCTETS, Header};
use xk_core::{Message, Reason, reason};

/// Octets of the header.
pub const HEADER_OCTETS: usize = OCTETS;

/// Takes the header off a message.
///
/// # Errors
/// Why there is none; the message is as it was.
#[inline]
pub fn strip(message: &mut Message) -> Result<Header, &'static Reason> {
    let parsed = match message.peek_in_place::<HEADER_OCTETS>() {
        Some(octets) => Header::parse(octets),
        None => {
            let octets = message.header::<HEADER_OCTETS>().map_err(<&Reason>::from)?;
            Header::parse(&octets)
        }
    };
    let header = parsed.map_err(|_| &reason::MALFORMED)?;
    let _ = message.strip(HEADER_OCTETS);
    Ok(header)
}
