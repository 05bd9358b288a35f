//! Frames between tasks and a graph.
//!
//! [`Frames`] is a `Stream` and a `Sink` of them. Its other end is in a graph: a wire, so that
//! tasks carry what the graph sends ([`BELOW`], `task` in a graph file), or the top of a
//! conversation, so that tasks have what a session carries ([`ABOVE`], `task-top`).
//! [`Frames::carry`] lets any `AsyncRead + AsyncWrite` carry them, as records (RFC 5531, section
//! 11).

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use xk_core::graph::{
    Build, BuildError, Entry, Family, Guarantees, ParamKind, Params, Realm, octets, optional,
    required,
};
use xk_core::object::{OpenError, PushError, Refused, SessionSlot};
use xk_core::reason::{self, Class};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef, Time,
    Upper,
};
use xk_kit::wire::device::{Anchored, Capabilities, Device, Receiving, Unsent};
use xk_kit::wire::entry::{HEADROOM, address, station};
use xk_run::Bell;

/// Frames that wait each way, at most.
const WAITING_MAX: usize = 256;
/// The mark of a record: its last fragment, and its length.
const LAST: u32 = 1 << 31;
/// Octets of the longest record.
const RECORD_MAX: usize = 65_535;

/// Dropped: a frame without a task that could receive it.
pub static NO_TASK: Reason = Reason::new("no task", Class::Exhausted);
/// Dropped: a task's frame that came before there was a session to send it by.
pub static NO_PEER: Reason = Reason::new("no peer yet", Class::Exhausted);
/// The reasons of this crate.
pub static REASONS: &[&Reason] = &[&NO_TASK, &NO_PEER];

/// A frame's way, and the task that waits at its end.
#[derive(Default)]
struct Way {
    frames: VecDeque<Bytes>,
    waits: Option<Waker>,
}

struct Shared {
    bell: Bell,
    to_graph: Mutex<Way>,
    to_task: Mutex<Way>,
    /// Whether a graph has taken the other end, and has not been stopped since.
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No graph uses it yet, and frames wait for one.
    Waits,
    Runs,
    Stopped,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ends that graphs may take, by number.
static ENDS: Mutex<BTreeMap<u64, Weak<Shared>>> = Mutex::new(BTreeMap::new());
static LAST_END: AtomicU64 = AtomicU64::new(0);

/// Tasks' end of frames; see the [module](self).
pub struct Frames {
    shared: Arc<Shared>,
    end: u64,
}

impl Frames {
    /// Makes a queue of frames, whose other end a graph uses by the number that [`end`](Self::end)
    /// returns.
    ///
    /// # Errors
    /// If the system has no descriptor to wake a graph by.
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            bell: Bell::new()?,
            to_graph: Mutex::default(),
            to_task: Mutex::default(),
            state: Mutex::new(State::Waits),
        });
        let end = LAST_END.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&ENDS).insert(end, Arc::downgrade(&shared));
        Ok(Self { shared, end })
    }

    /// Value for the parameter `end` of `task` or `task-top`, unique in this process.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn poll_frame(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut way = lock(&self.shared.to_task);
        if let Some(frame) = way.frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        if *lock(&self.shared.state) == State::Stopped {
            return Poll::Ready(None);
        }
        way.waits = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_room(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut way = lock(&self.shared.to_graph);
        if *lock(&self.shared.state) == State::Stopped {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if way.frames.len() < WAITING_MAX {
            return Poll::Ready(Ok(()));
        }
        way.waits = Some(cx.waker().clone());
        Poll::Pending
    }

    fn put(&self, frame: Bytes) {
        lock(&self.shared.to_graph).frames.push_back(frame);
        self.shared.bell.ring();
    }

    /// Receives the next frame that the graph sends; `None` once the graph has been stopped.
    pub async fn recv(&self) -> Option<Bytes> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// Sends the graph a frame, once there is room for it.
    ///
    /// # Errors
    /// `BrokenPipe` once the graph has been stopped.
    pub async fn send(&self, frame: impl Into<Bytes>) -> io::Result<()> {
        poll_fn(|cx| self.poll_room(cx)).await?;
        self.put(frame.into());
        Ok(())
    }

    /// Carries the frames over a stream of octets, each as a record with four octets in front. The
    /// other end may be another `Frames`, or `rm`. Ends when the stream or the graph does.
    ///
    /// # Errors
    /// What the stream says; `InvalidData` for a record of more than 65,535 octets, `UnexpectedEof`
    /// for a stream that ends within one.
    pub async fn carry(&self, stream: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        let (mut from, mut into) = tokio::io::split(stream);
        let arrives = async {
            while let Some(record) = read_record(&mut from).await? {
                self.send(record).await?;
            }
            // The stream has ended: the other direction is not waited for.
            Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionAborted))
        };
        let leaves = async {
            while let Some(frame) = self.recv().await {
                // No longer than what is read there.
                let length = frame.len().min(RECORD_MAX);
                let mark = (LAST | length as u32).to_be_bytes();
                let mut record = Buf::chain(&mark[..], frame.slice(..length));
                into.write_all_buf(&mut record).await?;
            }
            into.shutdown().await?;
            Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionAborted))
        };
        match tokio::try_join!(arrives, leaves) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }
}

/// The next record; `None` at the end of the stream.
async fn read_record(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut record = BytesMut::new();
    loop {
        let mut mark = [0; 4];
        match from.read(&mut mark).await? {
            0 if record.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => from.read_exact(&mut mark[count..]).await?,
        };
        let mark = u32::from_be_bytes(mark);
        let (begun, length) = (record.len(), (mark & !LAST) as usize);
        if length > RECORD_MAX - begun || length == 0 && mark & LAST == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        record.resize(begun + length, 0);
        from.read_exact(&mut record[begun..]).await?;
        if mark & LAST != 0 {
            return Ok(Some(record.freeze()));
        }
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.poll_frame(cx)
    }
}

impl Sink<Bytes> for Frames {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_room(cx)
    }

    fn start_send(self: Pin<&mut Self>, frame: Bytes) -> io::Result<()> {
        self.put(frame);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        lock(&ENDS).remove(&self.end);
    }
}

/// The graph's end. Held weakly: when the tasks' is gone, frames have nowhere to go.
struct GraphEnd(Weak<Shared>);

impl GraphEnd {
    fn take(params: &Params) -> Result<Self, BuildError> {
        let end = params.number("end", 0_u64);
        let found = lock(&ENDS).get(&end).cloned();
        let wanted = "what `Frames::end` of this process tells";
        let shared = found.ok_or_else(|| BuildError::param("end", wanted))?;
        if let Some(shared) = shared.upgrade() {
            *lock(&shared.state) = State::Runs;
        }
        Ok(Self(shared))
    }

    fn with<R>(&self, work: impl FnOnce(&Shared) -> R) -> Option<R> {
        self.0.upgrade().map(|shared| work(&shared))
    }

    /// Gives a message to the tasks.
    fn give(&self, message: &Message) -> Result<(), &'static Reason> {
        let given = self.with(|shared| {
            let mut way = lock(&shared.to_task);
            if way.frames.len() >= WAITING_MAX {
                return Err(&reason::QUEUE_FULL);
            }
            let mut frame = BytesMut::with_capacity(message.len());
            message.octet_slices().for_each(|slice| frame.extend_from_slice(slice));
            way.frames.push_back(frame.freeze());
            if let Some(task) = way.waits.take() {
                task.wake();
                xk_net::stir();
            }
            Ok(())
        });
        given.unwrap_or(Err(&NO_TASK))
    }

    /// Takes at most so many frames of the tasks.
    fn take_frames(&self, budget: usize, mut each: impl FnMut(Bytes)) {
        self.with(|shared| {
            shared.bell.take();
            let mut way = lock(&shared.to_graph);
            let count = budget.min(way.frames.len());
            way.frames.drain(..count).for_each(&mut each);
            if let Some(task) = way.waits.take_if(|_| count > 0) {
                task.wake();
                xk_net::stir();
            }
            if !way.frames.is_empty() {
                shared.bell.look_again();
            }
        });
    }

    fn has_frames(&self) -> bool {
        self.with(|shared| !lock(&shared.to_graph).frames.is_empty()).unwrap_or(false)
    }

    fn stop(&self) {
        self.with(|shared| {
            *lock(&shared.state) = State::Stopped;
            let waiting = [&shared.to_task, &shared.to_graph].map(|way| lock(way).waits.take());
            waiting.into_iter().flatten().for_each(Waker::wake);
            xk_net::stir();
        });
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.with(|shared| shared.bell.descriptor(see));
    }

    fn rest(&self) -> bool {
        self.with(|shared| shared.bell.rest()).unwrap_or(true)
    }

    fn woken(&self) {
        self.with(|shared| shared.bell.woken());
    }
}

/// The kind `task` of a graph file: tasks of this process as a wire.
#[rustfmt::skip]
pub static BELOW: Entry = Entry::wire("task", "# Synopsis\n`task end=N`: a wire whose other end \
    tasks of this process have, as `xk_tokio::Frames`.\n", build_below)
    .summary("a wire whose other end tasks of this process have")
    .parameters(&[
        required("end", ParamKind::integer(1..=i64::MAX), "what `Frames::end` tells"),
        octets("mtu", 1514, "the longest frame, its link header included"),
        address("our hardware address; if given, the wire carries Ethernet"),
    ])
    .reasons(REASONS);

struct TaskWire {
    frames: GraphEnd,
    mtu: usize,
}

fn build_below(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (frames, address) = (GraphEnd::take(build.params)?, station(build.params)?);
    let mtu = build.params.octets("mtu", 1514);
    let capabilities = match address {
        Some(address) => Capabilities::ethernet(mtu, address),
        None => Capabilities::bare(mtu),
    };
    build.add(Anchored::new(TaskWire { frames, mtu }, capabilities))
}

impl Device for TaskWire {
    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, this, budget, arrivals } = into;
        self.frames.take_frames(budget, |frame| {
            let drops = this.head().drops();
            if frame.len() > self.mtu {
                return drops.count(&reason::TOO_BIG);
            }
            match cx.pool().copy_from(HEADROOM, &frame) {
                Ok(message) => arrivals.push_back(message),
                Err(_) => drops.count(&reason::NO_BUFFERS),
            }
        });
    }

    fn send(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        let given = self.frames.give(&message);
        given.map_err(|why| Unsent::Refused(message, why, PushError::QueueFull))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.frames.stop();
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.frames.descriptor(see);
    }

    fn next_poll(&self) -> Option<Time> {
        self.frames.has_frames().then_some(Time::ZERO)
    }

    fn rest(&self, _: &Kernel, _: &dyn Sleeper) -> bool {
        self.frames.rest()
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.frames.woken();
    }
}

/// The kind `task-top` of a graph file: tasks of this process as one end of a conversation.
#[rustfmt::skip]
pub static ABOVE: Entry = Entry::top("task-top", "# Synopsis\n`task-top LOWER end=N to=PEER` or \
    `local=END`: tasks of this process have, as `xk_tokio::Frames`, what a session carries.\n",
    build_above)
    .summary("tasks of this process at the end of a session")
    .on(&[Realm::Async, Realm::Wire], &[Family::Any])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT).and(Guarantees::WHOLE))
    .parameters(&[
        required("end", ParamKind::integer(1..=i64::MAX), "what `Frames::end` tells"),
        optional("to", PARTICIPANT, "the peer; if not given, the last one that \
            has sent something"),
        optional("local", PARTICIPANT, "our end; `*` if not given"),
    ])
    .reasons(REASONS);

const PARTICIPANT: ParamKind = ParamKind::Participant("port7@10.0.0.2");

struct TaskTop {
    lower: ProtocolRef,
    frames: GraphEnd,
    to: Option<Participant>,
    local: Participant,
    session: SessionSlot,
}

fn build_above(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let local = build.params.participant("local")?;
    let top = TaskTop {
        lower: build.lower(0)?,
        frames: GraphEnd::take(build.params)?,
        to: build.params.participant("to")?,
        local: local.unwrap_or_else(|| Participant::of(xk_core::Part::Any)),
        session: SessionSlot::default(),
    };
    build.add(top)
}

impl TaskTop {
    /// Makes frames go by this session from now on.
    fn goes_by(&self, cx: &Kernel, session: &SessionRef) {
        if self.session.has(session) {
            return;
        }
        session.hold();
        session.watch();
        if let Some(before) = self.session.replace(Some(session.clone())) {
            before.close(cx);
        }
    }
}

impl Protocol for TaskTop {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (upper, local) = (Upper::new(this), self.local.clone());
        let Some(to) = &self.to else {
            let enable = self.lower.open_enable(cx, upper, Participants::local(local));
            return enable.map(drop);
        };
        let session = self.lower.open(cx, upper, Participants::pair(local, to.clone()))?;
        session.watch();
        drop(self.session.replace(Some(session)));
        Ok(())
    }

    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if self.session.has(lower) {
            drop(self.session.take());
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if self.to.is_none() {
            self.goes_by(cx, lower);
        }
        self.frames.give(&message).map_err(|why| this.refuse(message, why))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.frames.stop();
        self.session.close(cx);
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for TaskTop {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let mut frames = Vec::new();
        self.frames.take_frames(budget, |frame| frames.push(frame));
        let count = frames.len();
        for frame in frames {
            match (self.session.get(), cx.pool().copy_from(HEADROOM, &frame)) {
                // What fails is counted below.
                (Some(session), Ok(message)) => drop(session.push(cx, message).is_ok()),
                (None, Ok(message)) => this.discard(message, &NO_PEER),
                (_, Err(_)) => this.head().drops().count(&reason::NO_BUFFERS),
            }
        }
        count
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.frames.descriptor(see);
    }

    fn next_poll(&self) -> Option<Time> {
        self.frames.has_frames().then_some(Time::ZERO)
    }

    fn rest(&self, _: &Kernel, _: &ProtocolRef, _: &dyn Sleeper) -> bool {
        self.frames.rest()
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.frames.woken();
    }
}
