//! The header of a frame, and that of the datagram behind it: those of the crate that all of
//! AppleTalk's frameworks share.

use xk_appletalk::addr::NET_ANY;
pub use xk_appletalk::ddp::{LONG_LEN, Long, SHORT_LEN, Short};
pub use xk_appletalk::llap::{BROADCAST, HEADER_OCTETS, Header, Kind};
use xk_core::message::NoBuffers;
use xk_core::{Message, Reason, reason};

/// Gives a datagram the short header if both ends are of one network: what it is from then on.
///
/// # Errors
/// Why it cannot be sent; the message is as it was.
pub(crate) fn shorten(message: &mut Message) -> Result<Kind, &'static Reason> {
    let octets = message.header::<LONG_LEN>().map_err(<&Reason>::from)?;
    let long = Long::parse(&octets).map_err(|_| &reason::MALFORMED)?;
    let (to, from) = (long.to, long.from);
    if to.net != from.net && to.net != NET_ANY && from.net != NET_ANY {
        return Ok(Kind::LongDatagram);
    }
    let short = Short::new(to.socket, from.socket, long.kind, long.data_len());
    let short = short.ok_or(&reason::TOO_BIG)?;
    let _ = message.strip(LONG_LEN);
    message.push_array(&short.octets()).map_err(|NoBuffers| &reason::NO_BUFFERS)?;
    Ok(Kind::ShortDatagram)
}

/// Gives a datagram with the short header, from `from` to `to` in this network, the long one.
///
/// # Errors
/// Why it is none.
pub(crate) fn lengthen(
    message: &mut Message,
    net: u16,
    to: u8,
    from: u8,
) -> Result<(), &'static Reason> {
    let octets = message.header::<SHORT_LEN>().map_err(<&Reason>::from)?;
    let short = Short::parse(&octets).map_err(|_| &reason::MALFORMED)?;
    let long = short.lengthened(net, to, from).map_err(|_| &reason::MALFORMED)?;
    let _ = message.strip(SHORT_LEN);
    message.push_array(&long.octets()).map_err(|NoBuffers| &reason::NO_BUFFERS)
}
