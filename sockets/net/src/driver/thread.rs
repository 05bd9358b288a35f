//! A thread of its own drives the stack.

use super::commands::{CommandQueue, call};
use super::drive::{Drive, New, Setting, Wait};
use super::here::{FAREWELL, SETTLE_EVERY, bid_farewell};
use super::inside::{info_within, make_within, set_within};
use super::port::{Kind, Port, STREAM_OCTETS_MAX};
use super::pump::Reactor;
use crate::address::Endpoint;
use crate::layer::{Loss, Received, Socket, Sockets, To};
use crate::ready::{Becomes, Status, lock};
use crate::setup::Setup;
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xk_core::Kernel;
use xk_kit::net::stream::{StreamInfo, StreamSetting};
use xk_run::CommandWire;

/// Driver of a stack with a thread of its own; any thread may use its handles.
#[derive(Clone)]
pub struct Thread {
    inner: Arc<Inner>,
}

struct Inner {
    commands: Arc<CommandQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A socket of a stack with this driver.
pub struct Client(Arc<Port>);

impl super::Driver for Thread {}

impl Client {
    /// The port, if it is of this kind.
    fn of(&self, kind: Kind, or: Errno) -> Result<&Arc<Port>, Errno> {
        (self.0.kind == kind).then_some(&self.0).ok_or(or)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.commands.bell().leave();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        lock(&self.0.state).closing = true;
        self.0.tend(true);
    }
}

/// Tells the threads that wait that the stack has ended, however it did.
struct Ended(Rc<Reactor>, Rc<Kernel>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}

impl Thread {
    pub(crate) fn spawn(setup: Setup) -> io::Result<Self> {
        let commands = Arc::new(CommandQueue::new()?);
        let (made, is_made) = sync_channel(1);
        let theirs = Arc::clone(&commands);
        let thread = std::thread::Builder::new()
            .name("xk-stack".into())
            .spawn(move || run(&setup, &theirs, &made))?;
        let inner = Inner { commands, thread: Mutex::new(Some(thread)) };
        match is_made.recv() {
            Ok(result) => result.map(|()| Self { inner: Arc::new(inner) }),
            Err(_) => Err(io::Error::other("the stack's thread has ended")),
        }
    }

    /// Releases this handle, and waits until the thread has ended.
    pub(crate) fn end(self, limit: Duration) -> bool {
        let Some(thread) = lock(&self.inner.thread).take() else {
            return false;
        };
        let deadline = Instant::now().checked_add(limit);
        drop(self);
        while !thread.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            std::thread::sleep(SETTLE_EVERY);
        }
        // A panic there has been shown already.
        thread.join().is_ok()
    }

    /// Has something done with a socket in the stack.
    fn with<T: Send + 'static>(
        &self,
        client: &Client,
        work: impl FnOnce(&Kernel, &Reactor, &Rc<Socket>) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let port = Arc::clone(&client.0);
        call(&self.inner.commands, move |cx, reactor| {
            let socket = reactor.socket(&port).ok_or(Errno::BADF)?;
            let result = work(cx, reactor, &socket);
            reactor.tend(cx, &port);
            result
        })?
    }
}

/// The thread's work: the stack, until no handle is left and what was closed has ended.
fn run(setup: &Setup, commands: &Arc<CommandQueue>, told: &SyncSender<io::Result<()>>) {
    let mut kept = None;
    let sockets = Sockets::with_commands(setup.limits(), |layer| {
        let reactor = Rc::new(Reactor::new(layer, Arc::clone(commands)));
        kept = Some(Rc::clone(&reactor));
        Box::new(CommandWire::new(Arc::clone(commands), reactor))
    });
    let Some(reactor) = kept else {
        return;
    };
    let made = match setup.make(sockets) {
        Ok(made) => made,
        Err(error) => {
            let _ = told.send(Err(error));
            return;
        }
    };
    let ended = Ended(Rc::clone(&reactor), Rc::clone(&made.kernel));
    // If no thread waits for it any more, none has a handle either.
    let _ = told.send(Ok(()));
    let (theirs, layer) = (Arc::clone(commands), Rc::clone(&reactor.layer));
    // An interrupt of the process ends it, too, and the end of all that it stands on.
    let is_over = move || theirs.bell().is_leaving() || layer.loss() == Loss::All;
    let _ = made.runner.run(None, Rc::new(move |_| is_over()));
    bid_farewell(&made.runner, &made.kernel, &reactor.layer, || reactor.is_quiet(&made.kernel));
    drop(ended);
    drop(made.runner);
    made.kernel.stop();
}

impl Wait for Thread {
    fn wait(&self, becomes: &Becomes, deadline: Option<Instant>) -> io::Result<bool> {
        becomes.status.block(becomes.wanted, deadline);
        Ok(becomes.holds())
    }

    fn drain(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now().checked_add(limit);
        let mut sent = None;
        loop {
            let state =
                |cx: &Kernel, reactor: &Reactor| (reactor.is_quiet(cx), reactor.has_sent(cx));
            let (is_quiet, has_sent) = call(&self.inner.commands, state)?;
            if is_quiet {
                return Ok(true);
            }
            if has_sent && sent.get_or_insert_with(Instant::now).elapsed() > FAREWELL {
                return Ok(false);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            std::thread::sleep(SETTLE_EVERY);
        }
    }
}

impl Drive for Thread {
    type Socket = Client;

    fn make(&self, new: New) -> Result<Client, Errno> {
        let open = |cx: &Kernel, reactor: &Reactor| {
            make_within(cx, &reactor.layer, new).map(|socket| reactor.open(cx, socket))
        };
        call(&self.inner.commands, open)?.map(Client)
    }

    fn status(socket: &Client) -> &Arc<Status> {
        &socket.0.status
    }

    fn accept(&self, socket: &Client) -> Result<(Client, Endpoint), Errno> {
        let (port, peer) = socket.of(Kind::Listener, Errno::INVAL)?.accept()?;
        Ok((Client(port), peer))
    }

    fn read(
        &self,
        socket: &Client,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        socket.of(Kind::Stream, Errno::NOTCONN)?.read(into, peek)
    }

    fn write(&self, socket: &Client, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        socket.of(Kind::Stream, Errno::NOTCONN)?.write(from)
    }

    fn receive(
        &self,
        socket: &Client,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Errno> {
        socket.of(Kind::Datagrams, Errno::OPNOTSUPP)?.receive(into, peek)
    }

    fn send(&self, socket: &Client, from: &[IoSlice<'_>], to: To) -> Result<usize, Errno> {
        socket.of(Kind::Datagrams, Errno::OPNOTSUPP)?.send(from, to)
    }

    fn connect_datagrams(&self, socket: &Client, peer: Option<Endpoint>) -> Result<(), Errno> {
        self.with(socket, move |cx, reactor, socket| {
            reactor.layer.connect_datagrams(cx, socket, peer)
        })
    }

    fn shutdown(&self, socket: &Client, how: Shutdown) -> Result<(), Errno> {
        socket.0.shutdown(how)
    }

    fn set(&self, socket: &Client, setting: Setting) -> Result<(), Errno> {
        let mut setting = setting;
        match &mut setting {
            Setting::Linger(linger) => {
                lock(&socket.0.state).abandoned = *linger == Some(Duration::ZERO);
            }
            Setting::EndRecord if lock(&socket.0.state).end_record() => {
                // All octets before may be on their way already.
                socket.0.tend(true);
                return Ok(());
            }
            // Half of it may wait here.
            Setting::Stream(StreamSetting::UnsentMax(octets)) => {
                let here = (*octets / 2) as usize;
                *octets -= *octets / 2;
                lock(&socket.0.state).leaving_max = Some(here.clamp(1, STREAM_OCTETS_MAX));
            }
            _ => {}
        }
        let port = Arc::clone(&socket.0);
        self.with(socket, move |cx, reactor, socket| {
            if let Setting::Backlog(None) = setting {
                reactor.turn_away(&port);
            }
            set_within(&reactor.layer, cx, socket, setting)
        })
    }

    fn info(&self, socket: &Client) -> Result<StreamInfo, Errno> {
        let port = Arc::clone(&socket.0);
        self.with(socket, move |cx, _, socket| {
            let mut info = info_within(cx, socket)?;
            let waits = u32::try_from(lock(&port.state).unsent).unwrap_or(u32::MAX);
            info.unsent = info.unsent.saturating_add(waits);
            Ok(info)
        })
    }

    fn addresses(&self, socket: &Client) -> (Endpoint, Option<Endpoint>) {
        let addresses = lock(&socket.0.state).addresses;
        addresses.unwrap_or((crate::address::ANY, None))
    }

    fn take_error(&self, socket: &Client) -> Option<Errno> {
        socket.0.error()
    }

    fn unread(&self, socket: &Client) -> usize {
        socket.0.unread()
    }
}
