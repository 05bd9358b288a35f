//! Streams.

use crate::address::{Endpoint, each};
use crate::driver::{Driver, Here, New, Setting};
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

/// One end of a stream, like `std::net::TcpStream`.
///
/// When its last handle is dropped, written octets are sent in the background and the stream ends.
/// If octets that arrived were not read, or [`set_linger`](Self::set_linger) says so, it is reset
/// instead.
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

    /// Connects to one address, within a time.
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

    /// Begins to connect, and returns at once. The stream is [`Ready::WRITABLE`] once it has
    /// connected or failed; [`take_error`](Self::take_error) tells which. The settings `before`
    /// take effect before the first segment, which announces some of them.
    ///
    /// # Errors
    /// What is known at once, such as that there is no way.
    pub fn begin_connect(
        stack: &Stack<D>,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        before: &[StreamSetting],
    ) -> io::Result<Self> {
        let new = New::Stream(local.map(Endpoint::from), peer.into(), before.to_vec());
        let socket = stack.driver.make(new)?;
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

    /// Reads octets without removing them.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fetch(&mut [IoSliceMut::new(buffer)], true)
    }

    /// Sets whether small segments are sent at once (Nagle's algorithm off).
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

    /// Sets what happens to unsent octets when the last handle is dropped. With a time of zero they
    /// are discarded and the connection is reset; otherwise they are sent in the background, as by
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

    /// Ends a record after the octets written so far (`MSG_EOR`): no segment has octets of both
    /// records, and the peer is asked to deliver at once.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn end_record(&self) -> io::Result<()> {
        self.0.set(Setting::EndRecord)
    }

    /// Sets an option that the standard library has no method for: congestion control, buffers, the
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

    /// State of the stream, as in `TCP_INFO`.
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
    /// Hands the stream over as octets, with all data not yet sent and not yet read.
    /// [`from_state`](Self::from_state) continues it in another stack with the same address, in
    /// this process or another. Here the stream ends for all handles, and its peer is not told.
    /// Packets for it are ignored for ten seconds, as long as this stack is there. On a library the
    /// registry ignores them; the octets have a ticket, which gives the stream to any program that
    /// may have its port, once and within ten seconds.
    ///
    /// # Errors
    /// `ENOTCONN` if it does not stand; `EOPNOTSUPP` if its protocol lies in another process or, on
    /// a library, more than 8 MiB wait in it. Then the stream is as it was.
    pub fn into_state(self) -> io::Result<Vec<u8>> {
        Ok(self.0.driver.give(&self.0.socket)?)
    }

    /// Continues a stream that was handed over. Timeouts, non-blocking mode and the behaviour at a
    /// close are those of a new one.
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

/// A listening socket, like `std::net::TcpListener`.
pub struct TcpListener<D: Driver = Here>(Arc<Handle<D>>);

any_socket!(TcpListener);

impl<D: Driver> TcpListener<D> {
    /// Listens at the first of these addresses that is available; port 0 is any free one.
    /// Connections of an earlier listener that have not quite ended do not prevent it.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn bind(stack: &Stack<D>, local: impl ToSocketAddrs) -> io::Result<Self> {
        each(local, |local| Self::listen(stack, local.into(), BACKLOG))
    }

    /// Listens at this address. At most `backlog` peers, at least one, may wait to be accepted;
    /// others get no answer, and try again.
    pub fn listen(stack: &Stack<D>, local: SocketAddr, backlog: usize) -> io::Result<Self> {
        let listener = Self::reserve(stack, local, Sharing::default())?;
        listener.set_backlog(Some(backlog))?;
        Ok(listener)
    }

    /// Reserves an address without listening yet: connections are refused until
    /// [`set_backlog`](Self::set_backlog). Others may share the address.
    pub fn reserve(stack: &Stack<D>, local: SocketAddr, sharing: Sharing) -> io::Result<Self> {
        let socket = stack.driver.make(New::Listener(local.into(), sharing))?;
        Ok(Self(Handle::new(&stack.driver, socket)))
    }

    /// Sets the number of peers that may wait to be accepted. `None` stops listening: waiting peers
    /// are refused, and the address stays reserved.
    ///
    /// # Errors
    /// `EADDRINUSE` if others of the graph listen there.
    pub fn set_backlog(&self, backlog: Option<usize>) -> io::Result<()> {
        self.0.set(Setting::Backlog(backlog))
    }

    /// Sets the other sockets that it shares its address with from now on; those that have it
    /// already keep it.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_sharing(&self, sharing: Sharing) -> io::Result<()> {
        self.0.set(Setting::Share(sharing))
    }

    /// Sets the largest segment, in octets of data, to announce and to send to peers that connect
    /// from now on.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_segment_max(&self, octets: u16) -> io::Result<()> {
        self.0.set(Setting::Stream(StreamSetting::SegmentMax(octets)))
    }

    /// Sets the receive buffer of peers that connect from now on (`SO_RCVBUF`), in octets; it takes
    /// effect with the first window.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_receive_buffer(&self, octets: u32) -> io::Result<()> {
        self.0.set(Setting::Stream(StreamSetting::ReceiveBuffer(octets)))
    }

    /// Sets the number of peers that may have octets here before their handshake is done
    /// (`TCP_FASTOPEN`, RFC 7413); 0 allows none. Their requests must tolerate being executed
    /// twice.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_fast_open_max(&self, peers: u32) -> io::Result<()> {
        self.0.set(Setting::Stream(StreamSetting::FastOpenMax(peers)))
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

    /// Iterates over all peers that connect, without an end.
    pub fn incoming(&self) -> Incoming<'_, D> {
        Incoming { listener: self }
    }
}

/// Iterator over all peers that connect; made by [`TcpListener::incoming`].
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
