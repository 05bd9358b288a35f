//! PAP, the printer access protocol (Inside AppleTalk, second edition, chapter 10): what it says in
//! the user octets and the data of ATP's packets. Each end reads by asking the other for data.

use alloc::vec::Vec;

/// Octets of data in a packet, at most.
pub const PACKET_OCTETS_MAX: usize = 512;
/// Octets of a status text, at most.
pub const STATUS_OCTETS_MAX: usize = 255;
/// The result of an open by a printer that has another job.
pub const BUSY: u16 = 0xffff;

/// Function of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// A workstation asks for a connection.
    OpenConnection,
    /// The reply to that.
    OpenConnectionReply,
    /// One end asks the other for data.
    SendData,
    /// The data.
    Data,
    /// One end says that it is there.
    Tickle,
    /// One end ends the connection.
    CloseConnection,
    /// The reply to that.
    CloseConnectionReply,
    /// Asks for a printer's status, without a connection.
    SendStatus,
    /// The reply to that.
    Status,
}

impl Function {
    const ALL: [Self; 9] = [
        Self::OpenConnection,
        Self::OpenConnectionReply,
        Self::SendData,
        Self::Data,
        Self::Tickle,
        Self::CloseConnection,
        Self::CloseConnectionReply,
        Self::SendStatus,
        Self::Status,
    ];
}

/// The user octets of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The connection; 0 of none.
    pub connection: u8,
    /// Function of the packet.
    pub function: Function,
    /// Number of the request in [`SendData`](Function::SendData), from 1 on, with 0 after 65535;
    /// 0x100 in the last [`Data`](Function::Data).
    pub number: u16,
}

/// User octets that are none of PAP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function {0} is none of PAP's")]
pub struct UnknownFunction(pub u8);

impl User {
    /// User octets of a packet without a number.
    #[must_use]
    pub const fn new(connection: u8, function: Function) -> Self {
        Self { connection, function, number: 0 }
    }

    /// User octets of data, perhaps the last.
    #[must_use]
    pub const fn data(connection: u8, is_last: bool) -> Self {
        Self { connection, function: Function::Data, number: (is_last as u16) << 8 }
    }

    /// Whether these are the last data.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.number >> 8 != 0
    }

    /// Reads user octets.
    ///
    /// # Errors
    /// [`UnknownFunction`].
    pub fn parse([connection, function, high, low]: [u8; 4]) -> Result<Self, UnknownFunction> {
        let known = usize::from(function).checked_sub(1);
        let known = known.and_then(|at| Function::ALL.get(at)).copied();
        let number = u16::from_be_bytes([high, low]);
        Ok(Self { connection, function: known.ok_or(UnknownFunction(function))?, number })
    }

    /// Writes them.
    #[must_use]
    pub const fn emit(self) -> [u8; 4] {
        let [high, low] = self.number.to_be_bytes();
        [self.connection, self.function as u8 + 1, high, low]
    }
}

/// The data of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The socket where the workstation takes requests of the connection.
    pub socket: u8,
    /// Packets that it takes at once, 1 to 8.
    pub quantum: u8,
    /// For how long it has waited, in seconds.
    pub waited: u16,
}

/// The data of the reply to an open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The socket where the printer takes requests of the connection.
    pub socket: u8,
    /// Packets that it takes at once, 1 to 8.
    pub quantum: u8,
    /// 0, or why there is no connection: [`BUSY`].
    pub result: u16,
    /// The printer's status.
    pub status: Vec<u8>,
}

/// Why data are none of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// Fewer octets than there must be.
    #[error("the data are cut short")]
    Truncated,
    /// No packet at once, or more than eight.
    #[error("a quantum of {0}")]
    Quantum(u8),
    /// A socket that there is not.
    #[error("socket {0}")]
    Socket(u8),
}

fn ends(octets: &[u8]) -> Result<(u8, u8, u16), DataError> {
    let [socket, quantum, high, low] = *octets.first_chunk().ok_or(DataError::Truncated)?;
    match (socket, quantum) {
        (0 | 0xff, _) => Err(DataError::Socket(socket)),
        (_, 0 | 9..) => Err(DataError::Quantum(quantum)),
        _ => Ok((socket, quantum, u16::from_be_bytes([high, low]))),
    }
}

impl Open {
    /// Reads data.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DataError> {
        let (socket, quantum, waited) = ends(octets)?;
        Ok(Self { socket, quantum, waited })
    }

    /// Writes them.
    #[must_use]
    pub const fn emit(self) -> [u8; 4] {
        let [high, low] = self.waited.to_be_bytes();
        [self.socket, self.quantum, high, low]
    }
}

impl Opened {
    /// Reads data. A printer that is busy may name no socket.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DataError> {
        let [socket, quantum, high, low] = *octets.first_chunk().ok_or(DataError::Truncated)?;
        let result = u16::from_be_bytes([high, low]);
        if result == 0 {
            ends(octets)?;
        }
        let text = octets.get(4..).unwrap_or_default();
        let status = match text.split_first() {
            Some((len, text)) => text.get(..usize::from(*len)).ok_or(DataError::Truncated)?,
            None => &[],
        };
        Ok(Self { socket, quantum, result, status: status.into() })
    }

    /// Writes them; of a status the first 255 octets.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let [high, low] = self.result.to_be_bytes();
        let status = self.status.get(..STATUS_OCTETS_MAX).unwrap_or(&self.status);
        let mut octets = Vec::from([self.socket, self.quantum, high, low, status.len() as u8]);
        octets.extend_from_slice(status);
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Octets of netatalk's pap and papd.
    #[test]
    fn a_real_connection_opens() {
        let user = User::parse([2, 1, 0, 0]).unwrap();
        assert_eq!(user, User::new(2, Function::OpenConnection));
        assert_eq!(user.emit(), [2, 1, 0, 0]);
        let open = Open::parse(&[0x8d, 8, 0, 0]).unwrap();
        assert_eq!(open, Open { socket: 0x8d, quantum: 8, waited: 0 });
        assert_eq!(open.emit(), [0x8d, 8, 0, 0]);
        let reply = [0x83, 8, 0, 0, 4, b'i', b'd', b'l', b'e'];
        let opened = Opened::parse(&reply).unwrap();
        assert_eq!((opened.socket, opened.status.as_slice()), (0x83, &b"idle"[..]));
        assert_eq!(opened.emit(), reply);
        for len in 0..4 {
            assert_eq!(Open::parse(&reply[..len]), Err(DataError::Truncated));
            assert_eq!(Opened::parse(&reply[..len]), Err(DataError::Truncated));
        }
        assert!(Opened::parse(&reply[..4]).is_ok_and(|opened| opened.status.is_empty()));
        for len in 5..reply.len() {
            assert_eq!(Opened::parse(&reply[..len]), Err(DataError::Truncated));
        }
        assert_eq!(Open::parse(&[0x8d, 9, 0, 0]), Err(DataError::Quantum(9)));
        assert_eq!(Open::parse(&[0, 8, 0, 0]), Err(DataError::Socket(0)));
        // papd asks for the first data.
        let asked = User { number: 1, ..User::new(7, Function::SendData) };
        assert_eq!(User::parse([7, 3, 0, 1]), Ok(asked));
        assert_eq!(User::data(7, true).emit(), [7, 4, 1, 0]);
        assert_eq!(User::parse([0, 10, 0, 0]), Err(UnknownFunction(10)));
        assert_eq!(User::parse([0, 0, 0, 0]), Err(UnknownFunction(0)));
    }

    proptest! {
        #[test]
        fn what_is_read_is_made_again(user: [u8; 4], octets: Vec<u8>) {
            if let Ok(read) = User::parse(user) {
                prop_assert_eq!(read.emit(), user);
            }
            if let Ok(read) = Open::parse(&octets) {
                prop_assert_eq!(&read.emit()[..], &octets[..4]);
            }
            if let Ok(read) = Opened::parse(&octets) {
                prop_assert_eq!(Opened::parse(&read.emit()), Ok(read));
            }
        }
    }
}
