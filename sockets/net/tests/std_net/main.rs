//! The behaviours of `std::net`, one by one, each with both drivers.

mod datagrams;
mod poller;
mod streams;

use std::time::Duration;
use xk_net::{Here, Setup, Stack, Thread};
use xk_testkit::ALONE;

/// Longer than anything takes here, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to see that nothing comes.
const A_MOMENT: Duration = Duration::from_millis(30);

fn here() -> Stack<Here> {
    Stack::from_text(ALONE, xk_catalog::PROTOCOLS).unwrap()
}

fn thread() -> Stack<Thread> {
    Setup::from_text(ALONE, xk_catalog::PROTOCOLS).thread().unwrap()
}

/// Makes two tests of each function: with the calling thread as the driver, and with a thread of
/// its own.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod here {
            $(#[test] fn $name() { super::$name(&crate::here()); })*
        }
        mod thread {
            $(#[test] fn $name() { super::$name(&crate::thread()); })*
        }
    };
}
pub(crate) use on_both;
