//! A thread of its own drives the stack.

use super::drive::{Drive, Setting};
use super::entrance::{Door, Entrance};
use super::here::FAREWELL;
use super::port::{Kind, Port};
use super::pump::Inside;
use crate::address::Endpoint;
use crate::layer::{Body, Received, Sharing, Socket, Sockets};
use crate::ready::{Condition, Status, lock};
use crate::setup::Setup;
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xk_core::{Kernel, Time};
use xk_kit::net::stream::{StreamInfo, StreamSetting};

/// From one look whether all has ended to the next.
const SETTLE_EVERY: Duration = Duration::from_millis(1);

/// A thread of its own drives the stack; handles may be used by any.
#[derive(Clone)]
pub struct Thread {
    inner: Arc<Inner>,
}

struct Inner {
    entrance: Arc<Entrance>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A socket of such a stack.
pub struct Client {
    port: Arc<Port>,
    entrance: Arc<Entrance>,
}

impl super::Driver for Thread {}

impl Drop for Inner {
    fn drop(&mut self) {
        self.entrance.bell.leave();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        lock(&self.port.state).closing = true;
        self.entrance.tend(&self.port);
    }
}

/// Tells whoever waits that the stack has ended, however it did.
struct Ended(Rc<Inside>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Thread {
    pub(crate) fn spawn(setup: Setup) -> io::Result<Self> {
        let entrance = Arc::new(Entrance::new()?);
        let (made, is_made) = sync_channel(1);
        let door = Arc::clone(&entrance);
        let thread = std::thread::Builder::new()
            .name("xk-stack".into())
            .spawn(move || run(&setup, &door, &made))?;
        let inner = Inner { entrance, thread: Mutex::new(Some(thread)) };
        match is_made.recv() {
            Ok(result) => result.map(|()| Self { inner: Arc::new(inner) }),
            Err(_) => Err(io::Error::other("the stack's thread has ended")),
        }
    }

    /// Lets go of this handle, and waits until the thread has ended.
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

    fn client(&self, port: Arc<Port>) -> Client {
        Client { port, entrance: Arc::clone(&self.inner.entrance) }
    }

    /// Has a socket made in the stack.
    fn open(
        &self,
        make: impl FnOnce(&Kernel, &Inside) -> Result<Rc<Socket>, Errno> + Send + 'static,
    ) -> Result<Client, Errno> {
        let port = self
            .inner
            .entrance
            .call(move |cx, inside| make(cx, inside).map(|socket| inside.open(cx, socket)))??;
        Ok(self.client(port))
    }

    /// Has something done with a socket in the stack.
    fn with<T: Send + 'static>(
        &self,
        client: &Client,
        work: impl FnOnce(&Kernel, &Inside, &Rc<Socket>) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let port = Arc::clone(&client.port);
        self.inner.entrance.call(move |cx, inside| {
            let socket = inside.socket(&port).ok_or(Errno::BADF)?;
            let result = work(cx, inside, &socket);
            inside.tend(cx, &port);
            result
        })?
    }

    fn tend_if(&self, client: &Client, hungry: bool) {
        if hungry {
            self.inner.entrance.tend(&client.port);
        }
    }
}

/// The thread's work: the stack, until no handle is left and what was closed has ended.
fn run(setup: &Setup, entrance: &Arc<Entrance>, told: &SyncSender<io::Result<()>>) {
    let mut kept = None;
    let sockets = Sockets::with_entrance(setup.limits(), |layer| {
        let inside = Rc::new(Inside::new(layer, Arc::clone(entrance)));
        kept = Some(Rc::clone(&inside));
        Box::new(Door { entrance: Arc::clone(entrance), inside })
    });
    let Some(inside) = kept else {
        return;
    };
    let ended = Ended(Rc::clone(&inside));
    let made = match setup.make(sockets) {
        Ok(made) => made,
        Err(error) => {
            let _ = told.send(Err(error));
            return;
        }
    };
    // If nobody waits for it any more, nobody has a handle either.
    let _ = told.send(Ok(()));
    let (door, left) = (Arc::clone(entrance), std::cell::Cell::new(Time::MAX));
    let finished = move |cx: &Kernel| {
        if !door.bell.is_leaving() {
            return false;
        }
        if left.get().is_never() {
            left.set(cx.now());
        }
        inside.is_quiet(cx) || cx.now() > left.get() + FAREWELL
    };
    let finished: Rc<dyn Fn(&Kernel) -> bool> = Rc::new(finished);
    // An interrupt of the process ends it, too.
    let _ = made.runner.run(None, finished);
    drop(ended);
    drop(made.runner);
    made.kernel.stop();
}

#[allow(private_interfaces, reason = "as for the trait")]
impl Drive for Thread {
    type Socket = Client;

    fn connect(
        &self,
        local: Option<Endpoint>,
        peer: Endpoint,
        before: &[StreamSetting],
    ) -> Result<Client, Errno> {
        let before = before.to_vec();
        self.open(move |cx, inside| inside.layer.connect(cx, local, peer, &before))
    }

    fn reserve(&self, local: Endpoint, sharing: Sharing) -> Result<Client, Errno> {
        self.open(move |cx, inside| inside.layer.reserve(cx, local, sharing))
    }

    fn datagrams(&self, local: Endpoint, sharing: Sharing) -> Result<Client, Errno> {
        self.open(move |cx, inside| inside.layer.datagrams(cx, local, sharing))
    }

    fn status(socket: &Client) -> &Arc<Status> {
        &socket.port.status
    }

    fn accept(&self, socket: &Client) -> Result<(Client, Endpoint), Errno> {
        if socket.port.kind != Kind::Listener {
            return Err(Errno::INVAL);
        }
        let (port, peer) = socket.port.accept()?;
        Ok((self.client(port), peer))
    }

    fn read(
        &self,
        socket: &Client,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        if socket.port.kind != Kind::Stream {
            return Err(Errno::NOTCONN);
        }
        let (octets, hungry) = socket.port.read(into, peek)?;
        self.tend_if(socket, hungry);
        Ok(octets)
    }

    fn write(&self, socket: &Client, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if socket.port.kind != Kind::Stream {
            return Err(Errno::NOTCONN);
        }
        let octets = socket.port.write(from)?;
        self.tend_if(socket, octets > 0);
        Ok(octets)
    }

    fn receive(
        &self,
        socket: &Client,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Errno> {
        if socket.port.kind != Kind::Datagrams {
            return Err(Errno::OPNOTSUPP);
        }
        let (received, hungry) = socket.port.receive(into, peek)?;
        self.tend_if(socket, hungry);
        Ok(received)
    }

    fn send(
        &self,
        socket: &Client,
        from: &[IoSlice<'_>],
        to: Option<Endpoint>,
    ) -> Result<usize, Errno> {
        if socket.port.kind != Kind::Datagrams {
            return Err(Errno::OPNOTSUPP);
        }
        let octets = socket.port.send(from, to)?;
        self.tend_if(socket, true);
        Ok(octets)
    }

    fn connect_datagrams(&self, socket: &Client, peer: Option<Endpoint>) -> Result<(), Errno> {
        self.with(socket, move |cx, inside, socket| {
            inside.layer.connect_datagrams(cx, socket, peer)
        })
    }

    fn shutdown(&self, socket: &Client, how: Shutdown) -> Result<(), Errno> {
        socket.port.shutdown(how)?;
        self.tend_if(socket, true);
        Ok(())
    }

    fn set(&self, socket: &Client, setting: Setting) -> Result<(), Errno> {
        if let Setting::Linger(linger) = setting {
            lock(&socket.port.state).abandoned = linger == Some(Duration::ZERO);
        }
        let port = Arc::clone(&socket.port);
        self.with(socket, move |cx, inside, socket| {
            if let Setting::Backlog(None) = setting {
                inside.turn_away(&port);
            }
            super::drive_set(&inside.layer, cx, socket, setting)
        })
    }

    fn info(&self, socket: &Client) -> Result<StreamInfo, Errno> {
        self.with(socket, |cx, _, socket| match &socket.body {
            Body::Stream(stream) => stream.info(cx),
            Body::Listener(_) | Body::Datagrams(_) => Err(Errno::NOPROTOOPT),
        })
    }

    fn addresses(&self, socket: &Client) -> (Endpoint, Option<Endpoint>) {
        let addresses = lock(&socket.port.state).addresses;
        addresses.unwrap_or((crate::address::ANY, None))
    }

    fn take_error(&self, socket: &Client) -> Option<Errno> {
        socket.port.error()
    }

    fn unread(&self, socket: &Client) -> usize {
        socket.port.unread()
    }

    fn look(&self) {}

    fn wait(&self, condition: &Arc<dyn Condition>, deadline: Option<Instant>) -> io::Result<bool> {
        condition.block(deadline);
        Ok(condition.holds())
    }

    fn settle(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now().checked_add(limit);
        let mut sent = None;
        loop {
            let state = |cx: &Kernel, inside: &Inside| (inside.is_quiet(cx), inside.has_sent(cx));
            let (is_quiet, has_sent) = self.inner.entrance.call(state)?;
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
