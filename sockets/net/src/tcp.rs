//! Streams.

use crate::address::{Endpoint, each};
use crate::driver::{Driver, Here, Setting};
use crate::error::invalid;
use crate::handle::{Handle, any_socket, two_way_socket};
use crate::layer::Sharing;
use crate::ready::Ready;
use crate::stack::{Shown, Source, Stack};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use xk_kit::net::stream::{StreamInfo, StreamSetting};

/// Number of peers that may wait to be accepted, as the standard library has it.
const BACKLOG: usize = 128;

/// One end of a stream: as `std::net::TcpStream`.
///
/// When the last handle of it is dropped, what was written is sent in the background and the stream
/// ends; if something that arrived was not read, or [`set_linger`](Self::set_linger) says so, it is
/// broken off.
pub struct TcpStream<D: Driver = Here>(Arc<Handle<D>>);

any_socket!(TcpStream);
two_way_socket!(TcpStream);

impl<D: Driver> TcpStream<D> {
    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    /// That of the last address: `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH` and the like.
    pub fn connect(stack: &Stack<D>, peer: impl ToSocketAddrs) -> io::Result<Self> {
        each(peer, |peer| Self::connect_until(stack, peer.into(), None))
    }

    /// Connects to one address within a time.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); `TimedOut` when the time is over.
    pub fn connect_timeout(
        stack: &Stack<D>,
        peer: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(invalid("cannot set a 0 duration timeout"));
        }
        let deadline = stack.driver.now().checked_add(timeout);
        Self::connect_until(stack, *peer, deadline)
    }

    /// Begins to connect, and answers at once. The stream is [`Ready::WRITABLE`] once it stands or
    /// has failed; [`take_error`](Self::take_error) says which. The settings `before` hold from the
    /// first segment on, which announces some of them.
    ///
    /// # Errors
    /// What is known at once, such as that there is no way.
    pub fn begin_connect(
        stack: &Stack<D>,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        before: &[StreamSetting],
    ) -> io::Result<Self> {
        let local = local.map(Endpoint::from);
        let socket = stack.driver.connect(local, peer.into(), before)?;
        Ok(Self(Handle::new(&stack.driver, socket)))
    }

    fn connect_until(
        stack: &Stack<D>,
        peer: SocketAddr,
        deadline: Option<Instant>,
    ) -> io::Result<Self> {
        let stream = Self::begin_connect(stack, None, peer, &[])?;
        if !stream.0.wait(Ready::SETTLED, deadline)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
        }
        match stream.0.take_error() {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// Reads without taking away.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fetch(&mut [IoSliceMut::new(buffer)], true)
    }

    /// Whether small segments go at once (Nagle's algorithm off).
    ///
    /// # Errors
    /// If the layer below does not know of it.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set(Setting::Stream(StreamSetting::NoDelay(on)))?;
        self.0.nodelay.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Value of [`set_nodelay`](Self::set_nodelay).
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.0.nodelay.load(Ordering::Relaxed))
    }

    /// Sets the fate of octets not yet sent when the last handle is dropped. A time of zero throws
    /// them away and resets the connection; anything else sends them in the background, as by
    /// default.
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        self.0.set(Setting::Linger(time))?;
        self.0.linger.set(time);
        Ok(())
    }

    /// Value of [`set_linger`](Self::set_linger).
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.linger.get())
    }

    /// Ends a record behind what was written so far (`MSG_EOR`): no segment carries octets of
    /// before and behind, and the peer is pushed to take what it has.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn end_record(&self) -> io::Result<()> {
        self.0.set(Setting::EndRecord)
    }

    /// Sets what has no name of its own in the standard library: congestion control, buffers, the
    /// user timeout.
    ///
    /// # Errors
    /// `EINVAL` for values out of bounds; `ENOPROTOOPT` if the layer below does not know of it.
    pub fn set(&self, setting: StreamSetting) -> io::Result<()> {
        match setting {
            // What is read when is this layer's own business.
            StreamSetting::ManualWindow(_) => Err(Errno::NOPROTOOPT.into()),
            StreamSetting::NoDelay(on) => self.set_nodelay(on),
            setting => self.0.set(Setting::Stream(setting)),
        }
    }

    /// State of the stream, as `TCP_INFO` tells it.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if the layer below does not know.
    pub fn info(&self) -> io::Result<StreamInfo> {
        Ok(self.0.driver.info(&self.0.socket)?)
    }

    #[inline]
    fn fetch(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        let handle = &*self.0;
        handle.until(Ready::READABLE, &handle.read_timeout, || {
            handle.driver.read(&handle.socket, into, peek)
        })
    }

    #[inline]
    fn give(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let handle = &*self.0;
        handle.until(Ready::WRITABLE, &handle.write_timeout, || {
            handle.driver.write(&handle.socket, from)
        })
    }
}

impl TcpStream<Here> {
    /// Hands the stream over as octets, with all that was written and not sent, and all that
    /// arrived and was not read: [`from_state`](Self::from_state) lets it go on, in another stack
    /// of the same address, of this process or another. Here it is over, for all handles; its peer
    /// hears nothing of it. What comes for it is answered by nothing for ten seconds, as long as
    /// this stack is there. On a library it is the registry that answers nothing: the octets have a
    /// ticket in them, which gives the stream, once and within ten seconds, to any member that may
    /// have its port.
    ///
    /// # Errors
    /// `ENOTCONN` if it does not stand; `EOPNOTSUPP` if its protocol lies in another process or, on
    /// a library, more than 8 MiB wait in it. Then the stream is as it was.
    pub fn into_state(self) -> io::Result<Vec<u8>> {
        Ok(self.0.driver.give(&self.0.socket)?)
    }

    /// Goes on with a stream that was handed over. Timeouts, non-blocking mode and what a close
    /// does are those of a new one.
    ///
    /// # Errors
    /// `EINVAL` if the octets are no stream's; `EADDRINUSE` if one between the same ends is here.
    pub fn from_state(stack: &Stack<Here>, state: &[u8]) -> io::Result<Self> {
        let socket = stack.driver.resume(state)?;
        Ok(Self(Handle::new(&stack.driver, socket)))
    }
}

impl<D: Driver> Read for &TcpStream<D> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fetch(&mut [IoSliceMut::new(buffer)], false)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.fetch(buffers, false)
    }
}

impl<D: Driver> Write for &TcpStream<D> {
    #[inline]
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.give(&[IoSlice::new(octets)])
    }

    fn write_vectored(&mut self, octets: &[IoSlice<'_>]) -> io::Result<usize> {
        self.give(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<D: Driver> Read for TcpStream<D> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl<D: Driver> Write for TcpStream<D> {
    #[inline]
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        (&*self).write(octets)
    }

    fn write_vectored(&mut self, octets: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that listens: as `std::net::TcpListener`.
pub struct TcpListener<D: Driver = Here>(Arc<Handle<D>>);

any_socket!(TcpListener);

impl<D: Driver> TcpListener<D> {
    /// Listens at the first of these addresses that can be had; port 0 is any free one. Connections
    /// of an earlier listener that are still about to end are not in the way.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn bind(stack: &Stack<D>, local: impl ToSocketAddrs) -> io::Result<Self> {
        each(local, |local| Self::listen(stack, local.into(), BACKLOG))
    }

    /// Listens at this address, for so many peers that wait to be accepted, one at least. Others
    /// are not answered, and try again.
    pub fn listen(stack: &Stack<D>, local: SocketAddr, backlog: usize) -> io::Result<Self> {
        let listener = Self::reserve(stack, local, Sharing::default())?;
        listener.set_backlog(Some(backlog))?;
        Ok(listener)
    }

    /// Keeps an address without listening there yet: connections are refused until
    /// [`set_backlog`](Self::set_backlog). Others may share it.
    pub fn reserve(stack: &Stack<D>, local: SocketAddr, sharing: Sharing) -> io::Result<Self> {
        let socket = stack.driver.reserve(local.into(), sharing)?;
        Ok(Self(Handle::new(&stack.driver, socket)))
    }

    /// From now on so many peers may wait to be accepted. `None` listens no longer: those that
    /// wait are turned away, and the address is kept.
    ///
    /// # Errors
    /// `EADDRINUSE` if others of the graph listen there.
    pub fn set_backlog(&self, backlog: Option<usize>) -> io::Result<()> {
        let handle = &*self.0;
        handle.driver.set(&handle.socket, Setting::Backlog(backlog))?;
        Ok(())
    }

    /// With which others it has its address from now on; those that have it already keep it.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_sharing(&self, sharing: Sharing) -> io::Result<()> {
        Ok(self.0.driver.set(&self.0.socket, Setting::Share(sharing))?)
    }

    /// Peers that connect from now on are told of no larger segments, in octets of data, and sent
    /// none.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_segment_max(&self, octets: u16) -> io::Result<()> {
        let setting = Setting::Stream(StreamSetting::SegmentMax(octets));
        Ok(self.0.driver.set(&self.0.socket, setting)?)
    }

    /// Bounds the octets that are kept of what peers send that connect from now on
    /// (`SO_RCVBUF`), from the first window on.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_receive_buffer(&self, octets: u32) -> io::Result<()> {
        let setting = Setting::Stream(StreamSetting::ReceiveBuffer(octets));
        Ok(self.0.driver.set(&self.0.socket, setting)?)
    }

    /// So many peers may have octets here before their handshake is done (`TCP_FASTOPEN`, RFC
    /// 7413), from now on; with 0 none. What they ask for must bear to be asked for twice.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_fast_open_max(&self, peers: u32) -> io::Result<()> {
        let setting = Setting::Stream(StreamSetting::FastOpenMax(peers));
        Ok(self.0.driver.set(&self.0.socket, setting)?)
    }

    /// Waits for the next peer.
    ///
    /// # Errors
    /// `WouldBlock` if it is not to wait; `EMFILE` at the bound of sockets.
    pub fn accept(&self) -> io::Result<(TcpStream<D>, SocketAddr)> {
        let handle = &*self.0;
        let (socket, peer) = handle.until(Ready::READABLE, &handle.read_timeout, || {
            handle.driver.accept(&handle.socket)
        })?;
        Ok((TcpStream(Handle::new(&handle.driver, socket)), peer.into()))
    }

    /// All peers that come, one after the other, without an end.
    pub fn incoming(&self) -> Incoming<'_, D> {
        Incoming { listener: self }
    }
}

/// All peers that connect; made by [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'l, D: Driver = Here> {
    listener: &'l TcpListener<D>,
}

impl<D: Driver> Iterator for Incoming<'_, D> {
    type Item = io::Result<TcpStream<D>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
