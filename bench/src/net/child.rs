//! One end of a measurement: what the program does when it was started as a peer.

use super::endpoint::{Endpoint, System, VARIABLE, Wire, failed, say};
use super::{frames, memory, sockets, space, stack};
use crate::case::Trouble;
use crate::cores::place;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::{Value, json};
use std::fs::File;

/// If the environment asks for an end, runs it, writes what it found, and says true.
pub(crate) fn run_if_asked() -> bool {
    let Ok(text) = std::env::var(VARIABLE) else {
        return false;
    };
    let found = match Endpoint::parse(&text) {
        Some(end) => run(&end),
        None => Err(Trouble::Failed(format!("cannot read {text}"))),
    };
    let value = match found {
        Ok(value) => value,
        Err(Trouble::Skipped(why)) => json!({ "skipped": why }),
        Err(Trouble::Failed(what)) => json!({ "error": what }),
    };
    say(&value.to_string());
    true
}

/// Takes an end's place: its namespace and its core, for no longer than its parent lives.
///
/// # Errors
/// It is not to be had.
pub(super) fn begin(end: &Endpoint) -> Result<(), Trouble> {
    let begin = || -> std::io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().is_none_or(|parent| parent.is_init()) {
            return Err(std::io::Error::other("the parent has ended"));
        }
        if let Some(path) = &end.space {
            space::enter(&File::open(path)?)?;
        }
        Ok(place(end.core)?)
    };
    begin().map_err(failed("cannot take its place"))?;
    xk_run::interrupt_unsafe::catch();
    Ok(())
}

fn run(end: &Endpoint) -> Result<Value, Trouble> {
    begin(end)?;
    match end.system {
        System::Xk(wire) => stack::datagrams(end, wire),
        System::XkHost => stack::host(end),
        System::XkEth => stack::stations(end),
        System::XkIp => stack::hosts(end),
        System::XkFrames(wire) => stack::frames(end, wire),
        System::Bare(Wire::Packet) => frames::packet(end),
        System::Bare(Wire::Xdp) => frames::xdp(end),
        System::Bare(Wire::Tap) => frames::tap(end),
        System::Bare(Wire::Shm) => memory::run(end),
        System::LinuxIp
        | System::LinuxVeth
        | System::LinuxLoopback
        | System::LinuxVethJoined
        | System::LinuxLoopbackJoined
        | System::Bare(Wire::Host | Wire::HostUdp) => sockets::run(end),
        System::Smoltcp => super::smoltcp_raw::run(end),
        System::XkTcp(wire) => stack::streams(end, wire),
        System::XkTcpSmall | System::XkTcpFaulty(..) => stack::streams(end, Wire::Packet),
        System::Between(path) => super::between::run(end, path),
        System::Rpc(stack, wire) => stack::calls(end, stack, wire),
        System::XkTcpLarge => stack::streams(end, Wire::Shm),
        System::LinuxTcpVeth
        | System::LinuxTcpVethPlain
        | System::LinuxTcpSmall
        | System::LinuxTcpFaulty(_)
        | System::LinuxTcpLoopback => super::stream_sockets::run(end),
    }
}
