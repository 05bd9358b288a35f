//! Drivers: the ways in which a handle reaches its stack.

#![allow(
    private_bounds,
    private_interfaces,
    reason = "no other crate can name these traits, which is all of their point"
)]

mod commands;
mod here;
mod inside;
mod port;
mod programs;
mod pump;
mod sim;
mod thread;

pub use here::Here;
pub use programs::{JoinHandle, Parked, have_spawned};
pub use sim::{Crashed, Sim, SimHost};
pub use thread::Thread;

pub(crate) use drive::{Drive, New, Setting};

/// The driver of a stack: [`Here`], [`Thread`] or [`Sim`].
pub trait Driver: Drive {}

mod drive {
    //! Operations of a driver for a handle: no call waits, but for [`Wait::wait`] and
    //! [`Wait::drain`].

    use crate::address::Endpoint;
    use crate::layer::{GroupChange, Members, Received, Sharing, To};
    use crate::ready::{Becomes, Status};
    use rustix::io::Errno;
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::Shutdown;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use xk_core::HostAddr;
    use xk_kit::net::stream::{StreamInfo, StreamSetting};

    /// A setting of a socket.
    #[derive(Clone, Debug)]
    pub enum Setting {
        /// A setting of the stream.
        Stream(StreamSetting),
        /// Ends a record after the octets written so far.
        EndRecord,
        /// Treatment of unsent octets at a close (`SO_LINGER`).
        Linger(Option<Duration>),
        /// Allows datagrams to broadcast addresses.
        Broadcast(bool),
        /// Octets of datagrams that may wait to be read.
        ReceiveBuffer(u32),
        /// Number of peers that may wait to be accepted; `None` to stop listening.
        Backlog(Option<usize>),
        /// The other sockets that it shares its port with.
        Share(Sharing),
        /// Received datagrams report fields of their headers.
        TellArrivals,
        /// A membership in a group, on the interface that has a host of ours.
        Group(HostAddr, HostAddr, GroupChange),
        /// Hops that datagrams to groups may go.
        GroupHops(u8),
        /// Whether datagrams to groups come back to this host.
        GroupLoop(bool),
        /// The host of ours that datagrams to groups come from.
        GroupFrom(HostAddr),
        /// Leaves a conversation once the others have what it has sent.
        Leave,
        /// Gives a state to a member of a conversation, for its start with this number.
        State(u8, u16, Vec<u8>),
    }

    /// A socket to be made.
    pub enum New {
        /// A stream from an address, if one is meant, to another, with settings for its beginning.
        Stream(Option<Endpoint>, Endpoint, Vec<StreamSetting>),
        /// A listener that does not listen yet.
        Listener(Endpoint, Sharing),
        Datagrams(Endpoint, Sharing),
        Talk(Members),
    }

    /// Passing of time, as a driver does it.
    pub trait Wait: Clone + 'static {
        /// The time that timeouts are counted in.
        fn now(&self) -> Instant {
            Instant::now()
        }
        /// Gives the stack a turn if no other thread does.
        fn look(&self) {}
        /// Waits until `becomes` holds, or until `deadline`; true if it holds.
        fn wait(&self, becomes: &Becomes, deadline: Option<Instant>) -> io::Result<bool>;
        /// Waits until what was closed has ended.
        fn drain(&self, limit: Duration) -> io::Result<bool>;
    }

    /// Operations of a driver on sockets.
    pub trait Drive: Wait {
        /// One socket; it is closed when it is dropped.
        type Socket: 'static;

        fn make(&self, new: New) -> Result<Self::Socket, Errno>;
        fn status(socket: &Self::Socket) -> &Arc<Status>;
        /// The peer that has waited longest, and its address.
        fn accept(&self, socket: &Self::Socket) -> Result<(Self::Socket, Endpoint), Errno>;
        fn read(
            &self,
            socket: &Self::Socket,
            into: &mut [IoSliceMut<'_>],
            peek: bool,
        ) -> Result<usize, Errno>;
        fn write(&self, socket: &Self::Socket, from: &[IoSlice<'_>]) -> Result<usize, Errno>;
        fn receive(
            &self,
            socket: &Self::Socket,
            into: &mut [IoSliceMut<'_>],
            peek: bool,
        ) -> Result<Received, Errno>;
        fn send(&self, socket: &Self::Socket, from: &[IoSlice<'_>], to: To)
        -> Result<usize, Errno>;
        fn connect_datagrams(
            &self,
            socket: &Self::Socket,
            peer: Option<Endpoint>,
        ) -> Result<(), Errno>;
        fn shutdown(&self, socket: &Self::Socket, how: Shutdown) -> Result<(), Errno>;
        fn set(&self, socket: &Self::Socket, setting: Setting) -> Result<(), Errno>;
        fn info(&self, socket: &Self::Socket) -> Result<StreamInfo, Errno>;
        fn addresses(&self, socket: &Self::Socket) -> (Endpoint, Option<Endpoint>);
        fn take_error(&self, socket: &Self::Socket) -> Option<Errno>;
        /// Octets that a read finds at once.
        fn unread(&self, socket: &Self::Socket) -> usize;
    }

    /// Fills buffers one behind the other.
    pub(crate) struct Scatter<'b, 's> {
        into: &'b mut [IoSliceMut<'s>],
        at: usize,
        filled: usize,
    }

    impl<'b, 's> Scatter<'b, 's> {
        pub(crate) fn new(into: &'b mut [IoSliceMut<'s>]) -> Self {
            Self { into, at: 0, filled: 0 }
        }

        /// Octets of all buffers together.
        pub(crate) fn room(&self) -> usize {
            self.into.iter().map(|slice| slice.len()).sum()
        }

        pub(crate) fn put(&mut self, mut octets: &[u8]) {
            while !octets.is_empty() {
                let Some(slice) = self.into.get_mut(self.at) else {
                    return;
                };
                let room = &mut slice[self.filled..];
                let count = room.len().min(octets.len());
                room[..count].copy_from_slice(&octets[..count]);
                octets = &octets[count..];
                self.filled += count;
                if self.filled == slice.len() {
                    self.at += 1;
                    self.filled = 0;
                }
            }
        }
    }
}
