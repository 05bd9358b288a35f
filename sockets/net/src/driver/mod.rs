//! How a handle reaches its stack.

mod commands;
mod here;
mod port;
mod pump;
mod thread;

pub use here::Here;
pub use thread::Thread;

pub(crate) use drive::{Drive, Setting};

use crate::layer::{Body, Layer, Socket};
use rustix::io::Errno;
use xk_core::Kernel;
use xk_kit::net::stream::StreamSetting;

/// What drives a stack: [`Here`] or [`Thread`].
pub trait Driver: Drive {}

mod drive {
    //! What a driver does for a handle: no call waits, but for [`Drive::wait`] and
    //! [`Drive::drain`].

    use crate::address::Endpoint;
    use crate::layer::{Received, Sharing};
    use crate::ready::{Condition, Status};
    use rustix::io::Errno;
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::Shutdown;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use xk_kit::net::stream::{StreamInfo, StreamSetting};

    /// What can be set on a socket.
    #[derive(Clone, Copy, Debug)]
    pub enum Setting {
        /// Of the stream below.
        Stream(StreamSetting),
        /// What a close does with what is not sent.
        Linger(Option<Duration>),
        /// Datagrams may go to everybody.
        Broadcast(bool),
        /// Octets of datagrams that wait for their reader.
        ReceiveBuffer(u32),
        /// How many peers may wait to be accepted; `None` to listen no longer.
        Backlog(Option<usize>),
        /// With which others it has its port.
        Share(Sharing),
    }

    #[allow(
        private_interfaces,
        reason = "nobody outside can name this trait, which is all of its point"
    )]
    pub trait Drive: Clone + 'static {
        /// One socket; it is closed when it is dropped.
        type Socket: 'static;

        fn connect(
            &self,
            local: Option<Endpoint>,
            peer: Endpoint,
            before: &[StreamSetting],
        ) -> Result<Self::Socket, Errno>;
        fn reserve(&self, local: Endpoint, sharing: Sharing) -> Result<Self::Socket, Errno>;
        fn datagrams(&self, local: Endpoint, sharing: Sharing) -> Result<Self::Socket, Errno>;

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
        fn send(
            &self,
            socket: &Self::Socket,
            from: &[IoSlice<'_>],
            to: Option<Endpoint>,
        ) -> Result<usize, Errno>;
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

        /// Gives the stack a turn if no other thread does.
        fn look(&self);
        /// Waits until `condition` holds, or until `deadline`; true if it holds.
        fn wait(
            &self,
            condition: &Arc<dyn Condition>,
            deadline: Option<Instant>,
        ) -> io::Result<bool>;
        /// Waits until what was closed has ended.
        fn drain(&self, limit: Duration) -> io::Result<bool>;
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

/// Sets something on a socket, within the stack.
fn drive_set(layer: &Layer, cx: &Kernel, socket: &Socket, setting: Setting) -> Result<(), Errno> {
    match (&socket.body, setting) {
        (Body::Stream(stream), Setting::Stream(setting)) => stream.set(cx, setting),
        (Body::Stream(stream), Setting::Linger(linger)) => {
            stream.set_linger(linger);
            Ok(())
        }
        (Body::Datagrams(datagrams), Setting::Broadcast(on)) => {
            datagrams.set_broadcast(on);
            Ok(())
        }
        (Body::Datagrams(datagrams), Setting::ReceiveBuffer(octets)) => {
            datagrams.set_octets_max(octets as usize);
            Ok(())
        }
        (Body::Listener(listener), Setting::Backlog(backlog)) => {
            layer.set_backlog(cx, socket, listener, backlog)
        }
        (Body::Listener(listener), Setting::Stream(StreamSetting::SegmentMax(octets))) => {
            listener.set_segment_max(octets);
            Ok(())
        }
        (Body::Listener(listener), Setting::Share(sharing)) => {
            layer.share_listener(listener, sharing);
            Ok(())
        }
        (Body::Datagrams(datagrams), Setting::Share(sharing)) => {
            layer.share_datagrams(datagrams, sharing);
            Ok(())
        }
        _ => Err(Errno::NOPROTOOPT),
    }
}
