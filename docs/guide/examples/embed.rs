//! A program with protocols in it and no graph file: `cargo run -p xk-guide --example embed`.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::object::Refused;
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_run::{Idle, Runner, real_kernel};

/// The program's own end of the graph: it keeps what it hears.
struct Listener {
    heard: Rc<RefCell<Vec<u8>>>,
}

impl Protocol for Listener {
    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.heard.borrow_mut().extend(message.octets());
        Ok(())
    }
}

/// Sends a message through `seq` to a wire that gives it back; what the program hears.
pub(crate) fn run() -> Result<Vec<u8>, Box<dyn Error>> {
    let kernel = Rc::new(real_kernel(1 << 20)?);
    let wire = xk_loopback::ENTRY.add(&kernel, "wire", &[], &Params::default())?;
    let params = Params::from([("hold", Value::Integer(8))]);
    let seq = xk_guide::ENTRY.add(&kernel, "seq", &[wire], &params)?;
    let heard = Rc::default();
    let listener = Listener { heard: Rc::clone(&heard) };
    let listener = kernel.add_protocol("listener", "listener", listener);
    kernel.numbers_mut().override_pair(listener.id(), seq.id(), 7);
    let runner = Runner::new(Rc::clone(&kernel), Idle::default())?;
    runner.start().map_err(|(protocol, error)| format!("{}: {error}", protocol.name()))?;

    let session = seq.open(&kernel, Upper::new(&listener), Participants::default())?;
    session.push(&kernel, kernel.pool().copy_from(64, b"hello")?)?;
    let done = Rc::clone(&heard);
    runner.run(Some(Duration::from_secs(10)), Rc::new(move |_| !done.borrow().is_empty()))?;
    drop(session);
    kernel.stop();
    Ok(heard.take())
}

#[allow(dead_code, reason = "the tests take this file in as a module")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", String::from_utf8(run()?)?);
    Ok(())
}
