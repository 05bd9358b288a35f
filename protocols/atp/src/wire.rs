//! The header, which is [`xk_appletalk::atp::Header`].

pub use xk_appletalk::atp::HEADER_OCTETS;
