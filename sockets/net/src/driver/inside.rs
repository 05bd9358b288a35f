//! Drivers whose handles call into the stack themselves: what they do with sockets is one.

use super::drive::{Drive, New, Scatter, Setting, Wait};
use crate::address::Endpoint;
use crate::layer::{Body, Layer, Received, Socket, To};
use crate::ready::Status;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xk_core::Kernel;
use xk_kit::net::stream::{StreamInfo, StreamSetting};

/// A driver whose handles are used on the thread of the stack.
pub trait Inside: Wait {
    /// A handle's part of its socket; the socket is closed when it is dropped.
    type Held: 'static;

    /// Does something in the stack.
    ///
    /// # Errors
    /// Those of `work`; `ENETDOWN` if the stack has ended.
    fn within<T>(&self, work: impl FnOnce(&Kernel, &Layer) -> Result<T, Errno>)
    -> Result<T, Errno>;

    /// Does something with a socket in the stack.
    ///
    /// # Errors
    /// As for [`within`](Self::within).
    fn with<T>(
        &self,
        held: &Self::Held,
        work: impl FnOnce(&Kernel, &Layer, &Rc<Socket>) -> Result<T, Errno>,
    ) -> Result<T, Errno>;

    /// A handle's part of a socket that was made just now.
    fn hold(&self, socket: Rc<Socket>) -> Self::Held;

    fn status(held: &Self::Held) -> &Arc<Status>;

    /// Sends what the stack keeps back to send more at once.
    fn flush(&self) {}
}

/// Makes a socket, and sends what that has to say.
pub(super) fn made<D: Inside>(
    driver: &D,
    make: impl FnOnce(&Kernel, &Layer) -> Result<Rc<Socket>, Errno>,
) -> Result<D::Held, Errno> {
    let socket = driver.within(make);
    driver.flush();
    socket.map(|socket| driver.hold(socket))
}

/// Does something with a socket, and sends what that has to say.
fn done<D: Inside, T>(
    driver: &D,
    held: &D::Held,
    work: impl FnOnce(&Kernel, &Layer, &Rc<Socket>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let result = driver.with(held, work);
    driver.flush();
    result
}

impl<D: Inside> Drive for D {
    type Socket = D::Held;

    fn make(&self, new: New) -> Result<D::Held, Errno> {
        made(self, |cx, layer| make_within(cx, layer, new))
    }

    fn status(held: &D::Held) -> &Arc<Status> {
        <D as Inside>::status(held)
    }

    fn accept(&self, held: &D::Held) -> Result<(D::Held, Endpoint), Errno> {
        let (accepted, peer) = self.with(held, |_, _, socket| {
            let Body::Listener(listener) = &socket.body else {
                return Err(Errno::INVAL);
            };
            let accepted = listener.accept(socket)?;
            listener.unaccepted().fetch_sub(1, Ordering::Relaxed);
            Ok(accepted)
        })?;
        self.flush();
        Ok((self.hold(accepted), peer))
    }

    #[inline]
    fn read(
        &self,
        held: &D::Held,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        let octets = self.with(held, |cx, _, socket| {
            let Body::Stream(stream) = &socket.body else {
                return Err(Errno::NOTCONN);
            };
            let mut scatter = Scatter::new(into);
            let room = scatter.room();
            stream.read(cx, socket, room, peek, |octets| scatter.put(octets))
        })?;
        self.flush();
        Ok(octets)
    }

    #[inline]
    fn write(&self, held: &D::Held, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let octets = self.with(held, |cx, _, socket| match &socket.body {
            Body::Stream(stream) => stream.write(cx, socket, from),
            Body::Listener(_) | Body::Datagrams(_) | Body::Talk(_) => Err(Errno::NOTCONN),
        })?;
        self.flush();
        Ok(octets)
    }

    #[inline]
    fn receive(
        &self,
        held: &D::Held,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Errno> {
        self.with(held, |cx, _, socket| {
            let mut scatter = Scatter::new(into);
            let room = scatter.room();
            socket.receive(cx, room, peek, |octets| scatter.put(octets))
        })
    }

    #[inline]
    fn send(&self, held: &D::Held, from: &[IoSlice<'_>], to: To) -> Result<usize, Errno> {
        done(self, held, |cx, layer, socket| socket.send(cx, layer, from, to))
    }

    fn connect_datagrams(&self, held: &D::Held, peer: Option<Endpoint>) -> Result<(), Errno> {
        self.with(held, |cx, layer, socket| layer.connect_datagrams(cx, socket, peer))
    }

    fn shutdown(&self, held: &D::Held, how: Shutdown) -> Result<(), Errno> {
        done(self, held, |cx, _, socket| match &socket.body {
            Body::Stream(stream) => stream.shutdown(cx, socket, how),
            Body::Datagrams(datagrams) => datagrams.shutdown(socket, how),
            Body::Listener(_) | Body::Talk(_) => Err(Errno::NOTCONN),
        })
    }

    fn set(&self, held: &D::Held, setting: Setting) -> Result<(), Errno> {
        done(self, held, |cx, layer, socket| set_within(layer, cx, socket, setting))
    }

    fn info(&self, held: &D::Held) -> Result<StreamInfo, Errno> {
        self.with(held, |cx, _, socket| info_within(cx, socket))
    }

    fn addresses(&self, held: &D::Held) -> (Endpoint, Option<Endpoint>) {
        let found = self.with(held, |_, _, socket| Ok(socket.addresses()));
        found.unwrap_or((crate::address::ANY, None))
    }

    fn take_error(&self, held: &D::Held) -> Option<Errno> {
        self.with(held, |_, _, socket| Ok(socket.take_error())).unwrap_or_else(Some)
    }

    fn unread(&self, held: &D::Held) -> usize {
        self.with(held, |_, _, socket| Ok(socket.unread())).unwrap_or(0)
    }
}

/// State of a stream.
pub(super) fn info_within(cx: &Kernel, socket: &Socket) -> Result<StreamInfo, Errno> {
    match &socket.body {
        Body::Stream(stream) => stream.info(cx),
        Body::Listener(_) | Body::Datagrams(_) | Body::Talk(_) => Err(Errno::NOPROTOOPT),
    }
}

/// Makes a socket, within the stack.
pub(super) fn make_within(cx: &Kernel, layer: &Layer, new: New) -> Result<Rc<Socket>, Errno> {
    match new {
        New::Stream(local, peer, before) => layer.connect(cx, local, peer, &before),
        New::Listener(local, sharing) => layer.reserve(cx, local, sharing),
        New::Datagrams(local, sharing) => layer.datagrams(cx, local, sharing),
        New::Talk(members) => layer.converse(cx, members),
    }
}

/// Sets something on a socket, within the stack.
pub(super) fn set_within(
    layer: &Layer,
    cx: &Kernel,
    socket: &Socket,
    setting: Setting,
) -> Result<(), Errno> {
    match &socket.body {
        Body::Stream(stream) => match setting {
            Setting::Stream(setting) => stream.set(cx, setting)?,
            Setting::EndRecord => stream.end_record(cx),
            Setting::Linger(linger) => stream.linger.set(linger),
            _ => return Err(Errno::NOPROTOOPT),
        },
        Body::Listener(listener) => match setting {
            Setting::Backlog(backlog) => layer.set_backlog(cx, socket, listener, backlog)?,
            Setting::Stream(StreamSetting::SegmentMax(octets)) => listener.segment_max.set(octets),
            Setting::Stream(StreamSetting::ReceiveBuffer(octets)) => {
                listener.receive_buffer.set(octets);
            }
            Setting::Stream(StreamSetting::FastOpenMax(peers)) => {
                listener.fast_open_max.set(Some(peers));
            }
            Setting::Share(sharing) => layer.share_listener(listener, sharing),
            _ => return Err(Errno::NOPROTOOPT),
        },
        Body::Datagrams(datagrams) => match setting {
            Setting::Broadcast(on) => datagrams.broadcast.set(on),
            Setting::ReceiveBuffer(octets) => datagrams.octets_max.set(octets as usize),
            Setting::TellArrivals => layer.tell_arrivals(cx)?,
            Setting::Group(group, on, change) => {
                layer.change_group(cx, datagrams, group, on, change)?;
            }
            Setting::GroupFrom(from) => layer.send_from(cx, datagrams, from)?,
            Setting::GroupHops(hops) => datagrams.groups.set(|sending| {
                (sending.hops, sending.stays_in) = (hops, hops == 0);
            }),
            Setting::GroupLoop(on) => datagrams.groups.set(|sending| sending.stays_out = !on),
            Setting::Share(sharing) => layer.share_datagrams(datagrams, sharing),
            _ => return Err(Errno::NOPROTOOPT),
        },
        Body::Talk(talk) => match setting {
            Setting::Leave => talk.leave(cx, &layer.this()?, socket),
            Setting::State(member, start, state) => talk.give(member, start, state),
            _ => return Err(Errno::NOPROTOOPT),
        },
    }
    Ok(())
}
