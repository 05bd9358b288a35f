//! The guide's layer in a program of its own, above the UDP of a host that another process runs:
//! `cargo run -p xk-guide --example attach -- PATH take`, and beside it
//! `cargo run -p xk-guide --example attach -- PATH give TEXT`.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use xk_attach::Attached;
use xk_core::graph::Params;
use xk_core::numbers::Number;
use xk_core::object::{OpenError, Refused};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_run::{Idle, Runner};

/// The port that takes.
const TAKES: u16 = 5007;
/// The port that gives.
const GIVES: u16 = 5008;
/// The host of `open.kdl`.
const HOST: [u8; 4] = [10, 0, 0, 1];

/// The protocol on top: gives a text to the other program, or takes what that gives.
struct Top {
    seq: ProtocolRef,
    gives: Option<String>,
    taken: Rc<RefCell<Vec<String>>>,
}

fn end(port: u16) -> Participant {
    Participant::of(Part::Host(HostAddr::from(HOST))).with(Part::port(port))
}

impl Protocol for Top {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let Some(text) = &self.gives else {
            let here = Participants::local(end(TAKES));
            return self.seq.open_enable(cx, Upper::new(this), here).map(drop);
        };
        let both = Participants::pair(end(GIVES), end(TAKES));
        let session = self.seq.open(cx, Upper::new(this), both)?;
        let message = cx.pool().copy_from(128, text.as_bytes());
        // What cannot be sent is counted below.
        let _ = session.push(cx, message.map_err(|_| OpenError::NoBuffers)?);
        Ok(())
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        Ok(())
    }

    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let octets: Vec<u8> = message.octets().collect();
        self.taken.borrow_mut().push(String::from_utf8_lossy(&octets).into_owned());
        Ok(())
    }
}

/// Attaches at `path` and gives a text, or takes one; answers what was taken.
pub(crate) fn run(
    path: &Path,
    gives: Option<String>,
    limit: Duration,
) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let here = Attached::at(path, &[&xk_guide::ENTRY])?;
    let cx = here.kernel();
    let udp = here.find("udp").ok_or("the host grants no udp to this user")?;
    let seq = xk_guide::ENTRY.add(cx, "seq", std::slice::from_ref(udp), &Params::default())?;
    let number = Number { upper: "top", lower: "seq", number: 7 };
    cx.numbers_mut().add(number).map_err(|_| "the number is taken")?;
    let (taken, takes) = (Rc::<RefCell<Vec<String>>>::default(), gives.is_none());
    cx.add_protocol("top", "top", Top { seq, gives, taken: Rc::clone(&taken) });
    here.join()?;

    let runner = Runner::new(Rc::clone(cx), Idle::Sleep)?;
    runner.start().map_err(|(protocol, error)| format!("{}: {error}", protocol.name()))?;
    let (all, port) = (Rc::clone(&taken), here);
    let is_done = move |_: &Kernel| !takes || !all.borrow().is_empty() || port.is_lost();
    runner.run(Some(limit), Rc::new(is_done))?;
    Ok(taken.take())
}

#[allow(dead_code, reason = "the tests take this file in as a module")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (path, gives) = match words.as_slice() {
        [path, what] if what == "take" => (path, None),
        [path, what, text] if what == "give" => (path, Some(text.clone())),
        _ => {
            eprintln!("say PATH take, or PATH give TEXT");
            return ExitCode::FAILURE;
        }
    };
    match run(Path::new(path), gives, Duration::from_secs(60)) {
        Ok(taken) => {
            taken.iter().for_each(|text| println!("{text}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
