//! Throughput of a device through the network I/O module: frames of the greatest length and of no
//! protocol, from a program through its channel to a TAP device, and from a program that owns the
//! device.

use crate::case::Trouble;
use crate::child;
use crate::uppers::Each;
use std::io::{IoSlice, Result as IoResult};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xk_core::graph::{Params, Value};
use xk_core::{Kernel, Participants, ProtocolRef, Upper};
use xk_domains::ring::{Ring, pair};
use xk_kit::EthAddr;
use xk_kit::net::template::{Headers, Template};
use xk_netio::{GrantChannel, GrantRight, Rate, Ticket, channel};
use xk_run::{Idle, Runner, real_kernel};
use xk_tap::{Options, TapDevice};

const DEVICE: &str = "xkm0";
const FRAME_OCTETS: usize = 1514;
const HEADER_OCTETS: usize = 14;
/// Frames between two looks at the clock.
const BATCH: usize = 32;
const POOL_OCTETS: usize = 16 << 20;
/// The least time in which both sides have begun.
const TIME_MIN: Duration = Duration::from_millis(10);
/// No bound for a channel.
pub(super) const FREELY: Rate = Rate { octets_per_second: u64::MAX, burst_octets: u64::MAX };

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Builds what a graph's line of this kind would, on `lower`, with the defaults and what `set`
/// sets.
pub(super) fn node(
    cx: &Kernel,
    kind: &str,
    lower: Option<ProtocolRef>,
    set: impl FnOnce(&mut Params),
) -> Result<ProtocolRef, String> {
    let entry = xk_catalog::find(kind).ok_or_else(|| format!("no protocol `{kind}`"))?;
    let mut params = Params::default();
    set(&mut params);
    let lowers: Vec<_> = lower.into_iter().collect();
    entry.add(cx, kind, &lowers, &params).map_err(text)
}

/// Megabits a second that reach the device, in so much time: through the module, or without it.
///
/// # Errors
/// [`Trouble`]: the machine's, or what went wrong.
pub(super) fn throughput(by_module: bool, time: Duration) -> Result<f64, Trouble> {
    let way = if by_module { "module" } else { "alone" };
    let ms = time.max(TIME_MIN).as_millis();
    let found = child::ask_alone("mechanisms", &format!("{way} {ms}"))?;
    Ok(found.first().copied().unwrap_or(f64::NAN))
}

/// The work of [`throughput`], in a namespace of its own.
pub(crate) fn mechanisms(argument: &str) -> Result<Vec<f64>, String> {
    let (way, ms) = argument.split_once(' ').ok_or("no time")?;
    let time = Duration::from_millis(ms.parse().map_err(text)?);
    let mut frame = vec![0; FRAME_OCTETS];
    // From one station to another, of an experimental type (IEEE 802).
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame[..HEADER_OCTETS].copy_from_slice(&header);
    let found = match way {
        "alone" => alone(&frame, time),
        _ => by_module(&frame, time),
    };
    found.map(|figure| vec![figure])
}

fn alone(frame: &[u8], time: Duration) -> Result<f64, String> {
    let mut device = TapDevice::open(DEVICE, &Options::create()).map_err(text)?;
    rate(time, || {
        for _ in 0..BATCH {
            let _ = device.transmit(&[IoSlice::new(frame)]).map_err(text)?;
        }
        Ok(())
    })
}

fn by_module(frame: &[u8], time: Duration) -> Result<f64, String> {
    let (ours, theirs) = pair().map_err(text)?;
    let (ends, header) = (Arc::new(AtomicBool::new(false)), frame[..HEADER_OCTETS].to_vec());
    let (ended, (ready, is_ready)) = (Arc::clone(&ends), std::sync::mpsc::channel());
    let module = std::thread::spawn(move || {
        let runner = module(&header, theirs)?;
        let _ = ready.send(());
        let has_ended = move |_: &Kernel| ended.load(Ordering::Relaxed);
        runner.run(None, Rc::new(has_ended)).map_err(text)
    });
    // If it fails it says so at its end.
    let _ = is_ready.recv();
    let found = program(frame, ours, time);
    ends.store(true, Ordering::Relaxed);
    module.join().map_err(|_| "the module panicked")??;
    found
}

/// The module on the device, with a channel at `carrier` for frames with this header.
fn module(header: &[u8], carrier: Ring) -> Result<Runner, String> {
    let cx = Rc::new(real_kernel(POOL_OCTETS).map_err(text)?);
    let device = |params: &mut Params| {
        params.set("device", Value::Text(DEVICE.into()));
    };
    let tap = node(&cx, "tap", None, device)?;
    let (netio, module) = xk_netio::add(&cx, "netio", tap);
    let (number, ticket) = grant(&cx, &netio);
    let sent = Template::wire(FRAME_OCTETS).header(header, &[]).ok_or("no such header")?;
    grant_right(&cx, &netio, number, Headers { sent, received: Template::default() });
    let attached = module.attach(&cx, &ticket, Box::new(carrier));
    attached.map_err(|_| "the channel was not granted")?;
    let runner = Runner::new(cx, Idle::default()).map_err(text)?;
    runner.start().map_err(|(at, error)| format!("{}: {error}", at.name()))?;
    Ok(runner)
}

/// A channel of a module: its number, and what fetches it.
pub(super) fn grant(cx: &Kernel, netio: &ProtocolRef) -> (u32, Ticket) {
    let granted = netio.ask(cx, GrantChannel::new(FREELY)).expect("the module answers");
    (granted.number, granted.ticket.expect("there is room for a channel"))
}

/// The right to send and receive with these headers.
pub(super) fn grant_right(cx: &Kernel, netio: &ProtocolRef, channel: u32, headers: Headers) {
    let of = (netio.id(), Participants::default());
    let asked = GrantRight { channel, headers, of, number: None };
    let granted = netio.ask(cx, asked).and_then(|answer| answer.number);
    granted.expect("there is room for a right");
}

/// The program at the other end of the channel: sends as fast as that takes frames.
fn program(frame: &[u8], carrier: Ring, time: Duration) -> Result<f64, String> {
    let cx = real_kernel(POOL_OCTETS).map_err(text)?;
    let station = (EthAddr([2, 0, 0, 0, 0, 1]), FRAME_OCTETS);
    let (channel, _) = channel(&cx, "channel", Box::new(carrier), station);
    let upper = cx.add_protocol("upper", "upper", Each(drop));
    let session = channel.open(&cx, Upper::new(&upper), Participants::default());
    let session = session.map_err(text)?;
    let found = rate(time, || {
        for _ in 0..BATCH {
            let message = cx.pool().copy_from(0, frame).map_err(text)?;
            if session.push(&cx, message).is_err() {
                // The ring is full.
                std::thread::yield_now();
            }
        }
        if let Some(wire) = channel.wire() {
            wire.flush(&cx, &channel);
        }
        Ok(())
    });
    cx.stop();
    found
}

/// Megabits that come to the device in a second, while `send` is done again and again.
fn rate(time: Duration, mut send: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let warm = Instant::now() + time / 10;
    while Instant::now() < warm {
        send()?;
    }
    let (before, begun) = (received().map_err(text)?, Instant::now());
    while begun.elapsed() < time {
        send()?;
    }
    let (after, us) = (received().map_err(text)?, begun.elapsed().as_secs_f64() * 1e6);
    match after - before {
        0 => Err("nothing came to the device within the time".into()),
        octets => Ok(octets as f64 * 8.0 / us),
    }
}

/// Octets that the device's other end has received (proc(5), `/proc/net/dev`).
fn received() -> IoResult<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
    let octets = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    octets.ok_or_else(|| std::io::Error::other("the device is not there"))
}
