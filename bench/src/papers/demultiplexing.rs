//! Finding the channel of a frame that arrives, in three ways: by a map of the network I/O module,
//! by an index in the link header, and by a program of the system.

use super::mechanisms::{FREELY, grant, grant_right};
use crate::case::Trouble;
use crate::child;
use crate::udp_inprocess::Pair;
use crate::uppers::Each;
use std::hint::black_box;
use std::process::Command;
use xk_kit::net::template::{Headers, Template};
use xk_netio::INDEX_TYPE;
use xk_netio::xdp::Steering;
use xk_run::real_kernel;
use xk_xdp::Mode;
use xk_xdp::bpf::{Assembler, PASS, Program};

/// Octets of a datagram.
const OCTETS: usize = 64;
/// Octets of a frame in front of its index.
const STATIONS: usize = 12;
/// Runs of a program, of all frames together, of which the system tells the mean.
const RUNS: f64 = 100_000.0;

/// So many conversations: what the frames of each have alike, and one of them.
fn conversations(count: u16) -> Vec<(Template, Vec<u8>)> {
    let pair = Pair::new(count);
    (0..count).map(|_| pair.sample(OCTETS)).collect()
}

/// The right to receive such frames, and to answer to the station that they are for.
fn headers(of: &Template) -> Headers {
    Headers { sent: of.clone(), received: of.clone() }
}

/// Finds the channels of so many conversations in turn, by the module: by the index that each frame
/// bears, or by its headers.
pub(super) fn by_module(count: u16, by_index: bool) -> impl FnMut(u64) {
    let cx = real_kernel(1 << 22).expect("memory for a pool");
    let wire = cx.add_protocol("wire", "wire", Each(drop));
    let (netio, module) = xk_netio::add(&cx, "netio", wire);
    if by_index {
        module.use_indices();
    }
    let enter = |((template, mut frame), index): ((Template, Vec<u8>), u16)| {
        let (channel, _) = grant(&cx, &netio);
        grant_right(&cx, &netio, channel, headers(&template));
        if by_index {
            let [kind, index] = [INDEX_TYPE, index].map(u16::to_be_bytes);
            frame.splice(STATIONS..STATIONS, [kind, index].concat());
        }
        (channel, cx.pool().copy_from(0, &frame).expect("the pool has room"))
    };
    let frames: Vec<_> = conversations(count).into_iter().zip(1..).map(enter).collect();
    move |operations| {
        let _ = &cx;
        let mut turns = frames.iter().cycle();
        for (channel, frame) in turns.by_ref().take(operations as usize) {
            assert_eq!(module.would_take(black_box(frame)), Some(*channel), "it is found");
        }
    }
}

/// The mean nanoseconds in which the system's program finds the channel of a frame, of so many
/// conversations each; and those of a program that does nothing.
///
/// # Errors
/// [`Trouble`]: the machine's, or what went wrong.
pub(super) fn by_system(count: u16, effort: f64) -> Result<Vec<f64>, Trouble> {
    let runs = (RUNS * effort) as u32 + 1;
    child::ask_alone("demultiplexing", &format!("{count} {runs}"))
}

/// The work of [`by_system`], in a namespace of its own.
pub(crate) fn demultiplexing(argument: &str) -> Result<Vec<f64>, String> {
    let (count, runs) = argument.split_once(' ').ok_or("no count")?;
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let (count, runs) = (number(count)?, number(runs)?);
    for words in ["link add xkd0 type veth peer name xkd1", "link set xkd0 up"] {
        let made = Command::new("ip").args(words.split(' ')).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(format!("ip {words}: not done; needs it (apt install iproute2)"));
        }
    }
    let text = |error: xk_netio::xdp::SteeringError| error.to_string();
    let steering = Steering::attach("xkd0", Mode::Generic).map_err(text)?;
    let (mut sum, mut channels) = (0.0, Vec::new());
    let conversations = conversations(u16::try_from(count).map_err(|error| error.to_string())?);
    for (channel, (template, _)) in conversations.iter().enumerate() {
        let number = channel as u32 + 1;
        channels.push(steering.open(number, FREELY).map_err(text)?);
        steering.grant(number, headers(template)).map_err(text)?;
    }
    for (_, frame) in &conversations {
        if !steering.would_take(frame.clone()).map_err(text)? {
            return Err("a frame was not found".into());
        }
        sum += f64::from(steering.finds_in_ns(frame.clone(), runs.div_ceil(count)).map_err(text)?);
    }
    let mut asm = Assembler::default();
    asm.verdict(PASS);
    let frame = &conversations.first().ok_or("no conversation")?.1;
    let empty = Program::load(&asm.finish()).and_then(|program| program.time_ns(frame, runs));
    let empty = empty.map_err(|error| error.to_string())?;
    Ok(vec![sum / f64::from(count), f64::from(empty)])
}
