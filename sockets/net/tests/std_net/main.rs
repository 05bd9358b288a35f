//! The behaviours of `std::net`, one by one, with both drivers, wherever the transports run.

mod datagrams;
#[path = "../rig/domain.rs"]
mod domain;
mod frameworks;
mod losses;
mod poller;
mod streams;
#[allow(dead_code, reason = "the tests of the library alone look at the registry")]
#[path = "../rig/trusted.rs"]
mod trusted;

use std::time::Duration;
use xk_net::{Here, Setup, Stack, Thread};
use xk_testkit::ALONE;

/// Longer than anything takes here, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);
/// Long enough to see that nothing comes.
const A_MOMENT: Duration = Duration::from_millis(30);

fn here() -> Stack<Here> {
    Stack::from_text(ALONE, xk_catalog::PROTOCOLS).unwrap()
}

fn thread() -> Stack<Thread> {
    Setup::from_text(ALONE, xk_catalog::PROTOCOLS).thread().unwrap()
}

fn attached(run: impl FnOnce(Setup)) {
    let domain = domain::Domain::open(
        "std",
        r#"grant tcp; grant udp; grant tcp port="1..1023"; grant udp port="1..1023""#,
    );
    run(domain.setup());
}

fn library(run: impl FnOnce(Setup)) {
    let trusted = trusted::Trusted::new("std");
    run(trusted.setup());
}

/// Makes four tests of each function: with the calling thread as the driver, with a thread of its
/// own, and so on a graph that another thread runs, and on a library whose registry another thread
/// runs. Those behind `not across a cut` have the first two only.
macro_rules! everywhere {
    ($($name:ident),* $(,)? $(; not across a cut: $($uncut:ident),* $(,)?)?) => {
        mod here {
            $(#[test] fn $name() { super::$name(&crate::here()); })*
            $($(#[test] fn $uncut() { super::$uncut(&crate::here()); })*)?
        }
        mod thread {
            $(#[test] fn $name() { super::$name(&crate::thread()); })*
            $($(#[test] fn $uncut() { super::$uncut(&crate::thread()); })*)?
        }
        mod attached {
            $(#[test] fn $name() {
                crate::attached(|setup| super::$name(&setup.thread().unwrap()));
            })*
        }
        mod library {
            $(#[test] fn $name() {
                crate::library(|setup| super::$name(&setup.thread().unwrap()));
            })*
        }
    };
}
pub(crate) use everywhere;
