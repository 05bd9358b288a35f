//! Properties of a provider.

use super::State;

/// A size without a limit.
pub const UNLIMITED: u32 = u32::MAX;
/// A size of what is not supported.
pub const NO_SIZE: u32 = u32::MAX - 1;

/// The type of a provider's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Service {
    /// Connections.
    Cots = 1,
    /// Connections with orderly release.
    CotsOrd = 2,
    /// Datagrams.
    Clts = 3,
}

impl Service {
    /// By its number.
    pub fn of(number: u32) -> Option<Self> {
        [Self::Cots, Self::CotsOrd, Self::Clts].into_iter().find(|one| *one as u32 == number)
    }
}

/// Contents of T_INFO_ACK: sizes in octets, [`UNLIMITED`] or [`NO_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Largest unit of data.
    pub tsdu: u32,
    /// Largest unit of expedited data.
    pub etsdu: u32,
    /// Most data with a connection request.
    pub connect: u32,
    /// Most data with a disconnect.
    pub disconnect: u32,
    /// Largest address.
    pub address: u32,
    /// Largest options.
    pub options: u32,
    /// Most data in one primitive.
    pub tidu: u32,
    /// The type of the service.
    pub service: Service,
    /// The state that the endpoint is in.
    pub state: State,
    /// Flags of the provider: 1 if it takes units of no octets.
    pub flags: u32,
}

impl Info {
    /// Properties of a provider of datagrams of at most `tsdu` octets, with addresses and options
    /// of these sizes.
    pub const fn datagrams(tsdu: u32, address: u32, options: u32) -> Self {
        Self {
            tsdu,
            etsdu: NO_SIZE,
            connect: NO_SIZE,
            disconnect: NO_SIZE,
            address,
            options,
            tidu: tsdu,
            service: Service::Clts,
            state: State::Unbnd,
            flags: 0,
        }
    }
}
