//! Table I: what the parts of the system cost.

use super::linux;
use super::quoted::{LINUX, X_KERNEL, quoted};
use crate::case::{Case, Trouble};
use crate::domain::operations::crossing;
use crate::micro::shepherd;
use crate::stack::{Bottom, BottomWire, kernel};
use crate::uppers::Each;
use rustix::fs::{MemfdFlags, memfd_create};
use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::thread;
use std::time::Instant;
use xk_core::numbers::Number;
use xk_core::{Kernel, Participants, ProtocolRef, Upper};

/// The paper tells microseconds.
const NS_PER_US: f64 = 1000.0;
/// Switches of a round, there and back.
const SWITCHES: f64 = 5000.0;

const SWITCH: &str = "context switch";
const DISPATCH: &str = "dispatch a process";
const SESSION: &str = "open and close a session";
const ENTER: &str = "enter the kernel";
const EXIT: &str = "exit to the user";
const COPY: &str = "copy 1024 octets";
const CALL: &str = "(read 1 octet)";
/// A cut whose two sides are on one thread, and one between processes.
const CUT: &str = "xk, two domains on one thread";
const PROCESSES: &str = "xk, two domains in two processes";

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (row, figure) in [
        (SWITCH, 38.0),
        (DISPATCH, 135.0),
        (SESSION, 260.0),
        (ENTER, 20.0),
        (EXIT, 254.0),
        (COPY, 250.0),
    ] {
        list.push(quoted(row, X_KERNEL, figure * NS_PER_US));
    }
    list.extend(processes());
    list.extend(sessions());
    list.extend(boundary());
    list.extend(copies());
    list
}

/// The first two rows: shepherds beside threads.
fn processes() -> Vec<Case> {
    // A wait and its end are two switches.
    let mut switch = shepherd::block_and_resume().per(2.0).beside(LINUX);
    (switch.row, switch.goal) = (SWITCH.into(), None);
    let mut dispatch = shepherd::dispatch().beside(LINUX);
    (dispatch.row, dispatch.goal) = (DISPATCH.into(), None);
    let threads =
        Case::measured(SWITCH, |effort| linux::thread_switch((SWITCHES * effort) as u64 + 1));
    let spawned = Case::measured(DISPATCH, |effort| {
        let count = (SWITCHES / 10.0 * effort) as u64 + 1;
        let start = Instant::now();
        for _ in 0..count {
            let made = thread::Builder::new().spawn(|| black_box(()));
            let made = made.map_err(|error| Trouble::Failed(format!("no thread: {error}")))?;
            let _ = made.join();
        }
        Ok((start.elapsed().as_nanos() as f64 / count as f64).into())
    });
    vec![switch, threads.of(LINUX), dispatch, spawned.of(LINUX)]
}

/// A null layer over a wire, and a protocol above it.
fn null_layer() -> (Rc<Kernel>, ProtocolRef, ProtocolRef) {
    let cx = kernel();
    for number in xk_null::ENTRY.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let _ = cx.numbers_mut().add(Number { upper: "count", lower: "null", number: 7 });
    let wire = BottomWire::new(Bottom::Sink, [2, 0, 0, 0, 0, 1]);
    let bottom = cx.add_protocol("bottom", "bottom", wire);
    let null = xk_null::add(&cx, "null", bottom, 64);
    let top = cx.add_protocol("count", "top", Each(drop));
    cx.start().expect("null layers start on anything");
    (cx, null, top)
}

fn sessions() -> Vec<Case> {
    let null = Case::new(SESSION, 50_000, || {
        let (cx, null, top) = null_layer();
        move |operations| {
            for _ in 0..operations {
                let session = null.open(&cx, Upper::new(&top), Participants::default());
                session.expect("a null session opens").close(&cx);
            }
        }
    });
    let sockets = Case::new(SESSION, 2000, || {
        |operations| {
            for _ in 0..operations {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
                socket.connect((Ipv4Addr::LOCALHOST, 9)).expect("loopback has a route");
                drop(black_box(socket));
            }
        }
    });
    vec![null.beside(LINUX), sockets.of(LINUX)]
}

/// The boundary: where there is none, the call through a handle from an application into the graph,
/// and the one back, whose callee keeps the message; and where application and graph lie in two
/// domains, the crossing of a cut, which costs the same both ways.
fn boundary() -> Vec<Case> {
    let enter = Case::new(ENTER, 300_000, || {
        let cx = kernel();
        let wire = BottomWire::new(Bottom::Keep, [2, 0, 0, 0, 0, 1]);
        let kept = wire.kept();
        let bottom = cx.add_protocol("bottom", "bottom", wire);
        let top = cx.add_protocol("count", "top", Each(drop));
        let session =
            bottom.open(&cx, Upper::new(&top), Participants::default()).expect("the wire opens");
        let mut message = cx.pool().alloc(64, 1).ok();
        move |operations| {
            for _ in 0..operations {
                let Some(taken) = message.take() else { return };
                let _ = session.push(&cx, taken);
                message = kept.pop_front();
            }
        }
    });
    let exit = Case::new(EXIT, 300_000, || {
        let cx = kernel();
        let wire = BottomWire::new(Bottom::Sink, [2, 0, 0, 0, 0, 1]);
        let bottom = cx.add_protocol("bottom", "bottom", wire);
        let shelf = Rc::new(RefCell::new(None));
        let put = Rc::clone(&shelf);
        let top = cx.add_protocol("count", "top", Each(move |came| *put.borrow_mut() = Some(came)));
        let session =
            bottom.open(&cx, Upper::new(&top), Participants::default()).expect("the wire opens");
        let mut message = cx.pool().alloc(64, 1).ok();
        move |operations| {
            for _ in 0..operations {
                let Some(taken) = message.take() else { return };
                let _ = session.pop(&cx, taken);
                message = shelf.borrow_mut().take();
            }
        }
    });
    let call = Case::new(ENTER, 20_000, || {
        |operations| {
            for _ in 0..operations {
                black_box(rustix::process::getppid());
            }
        }
    });
    let trips = |effort| (SWITCHES * effort) as u64 + 1;
    let wake = Case::measured(EXIT, move |effort| linux::wake_reader(trips(effort)));
    let mut list = vec![enter.beside(LINUX), call.of(LINUX), exit.beside(LINUX), wake.of(LINUX)];
    for row in [ENTER, EXIT] {
        list.push(crossing(row, false).of(CUT).beside(LINUX));
        list.push(crossing(row, true).of(PROCESSES).beside(LINUX));
    }
    list
}

fn copies() -> Vec<Case> {
    const OCTETS: usize = 1024;
    let copy = Case::new(COPY, 300_000, || {
        let from = vec![1_u8; OCTETS];
        let mut to = vec![0_u8; OCTETS];
        move |operations| {
            for _ in 0..operations {
                black_box(&mut to).copy_from_slice(black_box(&from));
            }
        }
    });
    let read = |row, octets: usize| {
        Case::new(row, 20_000, move || {
            let file = memfd_create("xk-bench", MemfdFlags::CLOEXEC).expect("memory for a file");
            let file = File::from(file);
            file.write_all_at(&[1; OCTETS], 0).expect("memory can be written");
            let mut to = vec![0; octets];
            move |operations| {
                for _ in 0..operations {
                    file.read_exact_at(black_box(&mut to), 0).expect("it was written");
                }
            }
        })
    };
    let one = read(CALL, 1).of(LINUX);
    let all = read(COPY, OCTETS).less(CALL).of(LINUX);
    vec![copy.beside(LINUX), one, all]
}
