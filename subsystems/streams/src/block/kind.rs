//! Types of messages.

/// The type of a message: that of its first data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// User data (M_DATA).
    Data = 0x00,
    /// Control of a protocol, perhaps with data behind it (M_PROTO).
    Proto = 0x01,
    /// A line break (M_BREAK).
    Break = 0x08,
    /// A file is passed (M_PASSFP).
    PassFp = 0x09,
    /// A signal in its place among the data (M_SIG).
    Sig = 0x0b,
    /// A delay of output (M_DELAY).
    Delay = 0x0c,
    /// Between modules, never for the stream head (M_CTL).
    Ctl = 0x0d,
    /// A request of `ioctl` (M_IOCTL).
    Ioctl = 0x0e,
    /// Options of the stream head (M_SETOPTS).
    SetOpts = 0x10,
    /// An ioctl was done (M_IOCACK).
    IocAck = 0x81,
    /// An ioctl was refused (M_IOCNAK).
    IocNak = 0x82,
    /// Control of a protocol, of high priority (M_PCPROTO).
    PcProto = 0x83,
    /// A signal at once (M_PCSIG).
    PcSig = 0x84,
    /// The user reads (M_READ).
    Read = 0x85,
    /// Queues are to be flushed (M_FLUSH).
    Flush = 0x86,
    /// Output is to stop (M_STOP).
    Stop = 0x87,
    /// Output is to go on (M_START).
    Start = 0x88,
    /// The device is gone (M_HANGUP).
    Hangup = 0x89,
    /// An error that stays (M_ERROR).
    Error = 0x8a,
    /// Octets are wanted from the user (M_COPYIN).
    CopyIn = 0x8b,
    /// Octets are for the user (M_COPYOUT).
    CopyOut = 0x8c,
    /// The answer to the two above (M_IOCDATA).
    IocData = 0x8d,
    /// Input is to stop (M_STOPI).
    StopI = 0x8f,
    /// Input is to go on (M_STARTI).
    StartI = 0x90,
}

impl Kind {
    /// Whether it goes in front of all ordinary messages and past flow control.
    #[inline]
    pub fn is_high(self) -> bool {
        self as u8 >= 0x80
    }

    /// Whether it is flushed by FLUSHDATA: data and control of protocols.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Data | Kind::Proto | Kind::PcProto | Kind::Delay)
    }
}
