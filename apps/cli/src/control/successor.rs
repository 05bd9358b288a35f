//! The side of the running graph when another process takes its place (`xk upgrade`).
//!
//! The other process asks for the graph and whether it can be had ([`Request::Upgrade`]), for the
//! devices ([`Request::Device`]), builds and starts all of it without taking an arrival, and then
//! asks for the states of the sessions ([`Request::HandOver`]). From then on this loop stands
//! still: what arrives waits in the devices' queues, which both processes have. When the other one
//! has taken the states ([`Request::Taken`]) the sessions here end without a word to their peers,
//! and the loop ends. If it is not heard of within [`TAKE_WITHIN`], this one goes on.

use super::request::Request;
use super::server::{Job, Jobs, Piece, send_line};
use crate::view::Lowers;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xk_core::control::ListSessions;
use xk_core::graph::{Catalog, Shape};
use xk_core::{Entry, Kernel, ProtocolRef, SessionRef};
use xk_kit::net::moving::{self, GiveState, HalfOpen};

/// Time that the other process may take with the states.
const TAKE_WITHIN: Duration = Duration::from_secs(2);
/// Largest number of sessions that move.
const SESSIONS_MAX: usize = 1 << 20;

/// A session that has stopped, and the octets of its state.
type Stopped = (SessionRef, usize);

/// Hand-over to the process that is to go on.
pub(super) struct Successor {
    catalog: Catalog,
    about: Value,
    lowers: Lowers,
    /// The control socket, and whether it is the other process's.
    listener: OwnedFd,
    is_given: Arc<AtomicBool>,
    /// The job of its request for the states.
    asked: RefCell<Option<Job>>,
}

/// Whether sessions of this protocol give their state.
pub(crate) fn gives_state(entry: &Entry) -> bool {
    let gives = |name: &str| name == <GiveState as xk_core::Question>::NAME;
    entry.questions.iter().any(|q| gives(q.name))
}

fn list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl Successor {
    /// For the graph of this text; `is_given` is set once the control socket is another's.
    pub(super) fn new(
        (graph, about, lowers): (&str, &Value, &Lowers),
        listener: OwnedFd,
        is_given: Arc<AtomicBool>,
    ) -> Self {
        let (mut about, lowers) = (about.clone(), lowers.clone());
        about["text"] = json!(graph);
        let (catalog, asked) = (xk_catalog::standard(), RefCell::default());
        Self { catalog, about, lowers, listener, is_given, asked }
    }

    /// Whether a request is for this.
    pub(super) fn is_asked(&self, request: &Request) -> bool {
        use Request::{Device, HandOver, Taken, Upgrade};
        matches!(request, Upgrade | Device { .. } | HandOver | Taken)
    }

    /// Answers a request, or keeps it until [`look`](Self::look).
    pub(super) fn answer(&self, kernel: &Kernel, job: Job) {
        let failed = match &job.request {
            Request::Upgrade => match self.what_cannot(kernel) {
                None => {
                    let mut about = self.about.clone();
                    let wires = kernel.protocols().into_iter();
                    let named = |p: ProtocolRef| device_of(&p).map(|_| json!(p.name()));
                    about["devices"] = wires.filter_map(named).collect();
                    return send_line(&job.answers, &json!({"ok": about}));
                }
                Some(cannot) => cannot,
            },
            Request::Device { name } => {
                let device = match name {
                    Some(name) => kernel.find_protocol(name).and_then(|wire| device_of(&wire)),
                    None => self.listener.try_clone().ok(),
                };
                match device {
                    Some(device) => {
                        let _ = job.answers.try_send(Piece::Device(device));
                        return;
                    }
                    None => "there is no such device, or it cannot be handed over".into(),
                }
            }
            Request::HandOver if self.asked.borrow().is_none() => {
                self.asked.replace(Some(job));
                return;
            }
            Request::HandOver => "another process takes the place of this one".into(),
            _ => "nothing was handed over, or too long ago".into(),
        };
        send_line(&job.answers, &json!({"error": failed}));
    }

    /// Why another process cannot go on in this one's place, if it cannot.
    fn what_cannot(&self, kernel: &Kernel) -> Option<String> {
        let all = kernel.protocols();
        let is_wire = |p: &ProtocolRef| p.wire().is_some();
        let is_kept = |p: &&ProtocolRef| {
            self.catalog.find(p.head().kind()).is_none_or(|entry| !entry.is_replaceable)
        };
        let (wires, kept): (Vec<_>, Vec<_>) = all.iter().filter(is_kept).partition(|p| is_wire(p));
        let [wires, kept] =
            [wires, kept].map(|some| some.into_iter().map(ProtocolRef::name).collect::<Vec<_>>());
        if !wires.is_empty() {
            return Some(format!("the device of {} cannot be handed over", list(&wires)));
        }
        if !kept.is_empty() {
            return Some(format!(
                "the state of {} about its peers cannot be handed over",
                list(&kept)
            ));
        }
        let kind = |name: &str| kernel.find_protocol(name).map(|p| p.head().kind());
        let entry = |name: &str| kind(name).and_then(|kind| self.catalog.find(kind));
        let gives = |name: &String| entry(name).is_some_and(gives_state);
        let is_top = |name: &str| entry(name).is_some_and(|entry| entry.shape == Shape::Top);
        let stands =
            |(name, below): &&(String, Vec<String>)| below.iter().any(gives) && !is_top(name);
        let between: Vec<&str> =
            self.lowers.iter().filter(stands).map(|(name, _)| &**name).collect();
        let cannot = || format!("{} stands between connections and their users", list(&between));
        (!between.is_empty()).then(cannot)
    }

    /// Hands over, if that was asked for. True if the other process goes on now.
    pub(super) fn look(&self, kernel: &Kernel, jobs: &Jobs) -> bool {
        let Some(job) = self.asked.take() else {
            return false;
        };
        let (stopped, sessions, states) = self.stop_all(kernel);
        send_line(&job.answers, &json!({"ok": {"sessions": sessions}}));
        let _ = job.answers.try_send(Piece::Octets(states));
        // The client's next request is waited for, and nothing else: no arrival may be taken now.
        drop(job);
        let until = Instant::now() + TAKE_WITHIN;
        while let Some(job) = jobs.wait(until.saturating_duration_since(Instant::now())) {
            if job.request != Request::Taken {
                send_line(&job.answers, &json!({"error": "another process takes its place"}));
                continue;
            }
            let released = stopped
                .iter()
                .filter(|(session, octets)| moving::release(kernel, session, *octets))
                .count();
            self.is_given.store(true, Ordering::Release);
            send_line(&job.answers, &json!({"ok": {"released": released}}));
            crate::output::print(&format!(
                "another process has taken this one's place, with {released} connections\n"
            ));
            return true;
        }
        crate::output::error("xk: the process that was to take this one's place has not done so\n");
        false
    }

    /// Stops all sessions that give their state: what they are, and all states one behind the
    /// other.
    fn stop_all(&self, kernel: &Kernel) -> (Vec<Stopped>, Vec<Value>, Vec<u8>) {
        let (mut stopped, mut sessions, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for protocol in kernel.protocols() {
            if !self.catalog.find(protocol.head().kind()).is_some_and(gives_state) {
                continue;
            }
            // What is about to begin has a session from now on, and moves with it.
            let _ = protocol.ask(kernel, HalfOpen::default());
            let list = protocol.ask(kernel, ListSessions::first(SESSIONS_MAX));
            for session in list.unwrap_or_default().here() {
                let (head, ends) = (session.head(), moving::ends_of(kernel, session));
                let upper = kernel.name_of(head.upper());
                let (Some(upper), Some(ends)) = (upper, ends) else {
                    continue;
                };
                // One that is over has none.
                let Some(state) = moving::state_of(kernel, session) else {
                    continue;
                };
                sessions.push(json!({
                    "below": protocol.name(),
                    "above": upper,
                    "ends": ends.to_string(),
                    "holders": head.opens(),
                    "octets": state.len(),
                }));
                stopped.push((session.clone(), state.len()));
                states.extend(state);
            }
        }
        (stopped, sessions, states)
    }
}

/// The device of a wire, for another process as well.
fn device_of(wire: &ProtocolRef) -> Option<OwnedFd> {
    let mut device = None;
    wire.wire()?.descriptor(&mut |fd| {
        device = fd.downcast_ref::<OwnedFd>().and_then(|fd| fd.try_clone().ok());
    });
    device
}
