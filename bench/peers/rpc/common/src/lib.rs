//! A server and a client of one procedure that takes octets and answers nothing.
//!
//! `PROGRAM serve CORE SPINS` prints `ready PORT` and serves until its parent ends.
//! `PROGRAM call CORE SPINS PORT OCTETS TIME_US` calls one after the other and prints, in
//! nanoseconds, the p50 and the p99 of a call, then how many calls there were and how long all
//! took.
//!
//! Both ends run tokio's executor of one thread. It spins, if it is to, by a task that always
//! yields: the executor then asks for events after each turn and never sleeps.

mod trips;

pub use trips::Trips;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;

/// Whatever goes wrong; it is printed and ends the program.
pub type Wrong = Box<dyn std::error::Error>;

/// Task of a client.
pub struct Calls {
    /// Address of the server.
    pub server: SocketAddr,
    /// Octets of the argument.
    pub octets: usize,
    /// For how long.
    pub time: Duration,
}

/// Does what the command line asks for.
pub fn run<S, C>(
    serve: impl FnOnce(TcpListener) -> S,
    call: impl FnOnce(Calls) -> C,
) -> Result<(), Wrong>
where
    S: Future<Output = Result<(), Wrong>>,
    C: Future<Output = Result<(), Wrong>>,
{
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<u64, Wrong> {
        Ok(words.get(at).ok_or("an argument is missing")?.parse()?)
    };
    run_on(number(1)? as usize)?;
    let spins = number(2)? != 0;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if spins {
        builder.event_interval(1);
    }
    builder.build()?.block_on(async {
        if spins {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        if words[0] == "serve" {
            return serve(listener().await?).await;
        }
        let calls = Calls {
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(number(3)?)?)),
            octets: number(4)? as usize,
            time: Duration::from_micros(number(5)?),
        };
        call(calls).await
    })
}

/// Takes its core, and ends with its parent.
fn run_on(core: usize) -> Result<(), Wrong> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().is_none_or(|parent| parent.is_init()) {
        return Err("the parent has ended".into());
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

async fn listener() -> Result<TcpListener, Wrong> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("ready {}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    Ok(listener)
}
