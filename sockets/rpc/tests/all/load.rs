//! Many calls at once, callers that leave, services that stall, peers that are not there:
//! everything ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use xk_rpc::{Call, CallCause, Client, Error, ErrorKind, Refusal, Reply, Setup, Stack};

const GRAPH: &str = r#"host alone {
    loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip
    fragment ip; channel fragment; select channel
}"#;

/// Number of calls of all threads together, and number of threads; `XK_CALLS` asks for more calls.
const CALLS: u32 = 8_000;
const THREADS: u32 = 8;

/// A gate that holds up all that comes, until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("a lock") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut is_open = self.0.0.lock().expect("a lock");
        while !*is_open {
            is_open = self.0.1.wait(is_open).expect("a lock");
        }
    }
}

/// 1 echoes, 2 waits at the gate elsewhere, 3 waits there and keeps the stack's thread meanwhile.
fn service(gate: &Gate) -> impl Fn(&Call<'_>) -> Result<Reply, Refusal> + Send + 'static {
    let gate = gate.clone();
    move |call: &Call<'_>| {
        match call.procedure() {
            1 => return Ok(call.octets().into_owned().into()),
            2 => {
                let gate = gate.clone();
                call.elsewhere(move || gate.pass())?;
            }
            3 => gate.pass(),
            _ => return Err(Refusal::NoProcedure),
        }
        Ok(Reply::empty())
    }
}

fn client(stack: &Stack) -> Client {
    stack.client("10.0.0.1").expect("a client")
}

#[test]
fn no_wake_up_is_lost() {
    let calls = std::env::var("XK_CALLS").map_or(CALLS, |calls| calls.parse().expect("a number"));
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve(service(&Gate::default())).expect("taken");
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let client = client(&stack);
            std::thread::spawn(move || {
                for call in 0..calls / THREADS {
                    let octets = [thread.to_be_bytes(), call.to_be_bytes()].concat();
                    if call % 16 == 7 {
                        // A caller that loses interest, at any time.
                        drop(client.start(1, &octets).expect("begun"));
                    }
                    assert_eq!(client.call(1, &octets), Ok(octets));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all replies");
    }
}

/// More calls than may wait are turned away in time, and none of those that wait is lost.
#[test]
fn a_server_that_stalls_bounds_what_waits_for_it() {
    let gate = Gate::default();
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve(service(&gate)).expect("taken");
    let patient = client(&stack).with_deadline(Duration::from_secs(60));
    let mut waiting: Vec<_> = (0..4500).map(|_| patient.start(2, &[]).expect("begun")).collect();
    let hasty = client(&stack).with_deadline(Duration::from_millis(200));
    let error = loop {
        match hasty.start(2, &[]) {
            Ok(late) => drop(late),
            Err(error) => break error,
        }
        waiting.push(patient.start(2, &[]).expect("begun"));
        assert!(waiting.len() < 10_000, "nothing bounds them");
    };
    assert_eq!(error.kind, ErrorKind::Full, "{error}");
    gate.open();
    for pending in waiting {
        assert_eq!(pending.wait(), Ok(Vec::new()));
    }
    assert_eq!(hasty.call(1, b"and on"), Ok(b"and on".to_vec()));
}

#[test]
fn a_deadline_holds_even_if_a_service_keeps_the_stack() {
    let gate = Gate::default();
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve(service(&gate)).expect("taken");
    let kept = client(&stack).without_deadline().start(3, &[]);
    let hasty = client(&stack).with_deadline(Duration::from_millis(50));
    std::thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    let error = hasty.call(1, &[]).expect_err("nobody turns the loop");
    assert_eq!(error.kind, ErrorKind::Stuck, "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    gate.open();
    assert_eq!(kept.expect("begun").wait(), Ok(Vec::new()));
}

#[test]
fn a_deadline_may_have_passed_before_it_is_looked_at() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let served = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&served);
    let server = move |_: &Call<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Reply::empty())
    };
    let _server = stack.serve(server).expect("taken");
    let error = client(&stack).with_deadline(Duration::ZERO).call(1, &[]).expect_err("it is over");
    let cause = Some(CallCause::TimedOut { tries: 0 });
    assert_eq!(error.cause(), cause, "{error}");
    assert_eq!(served.load(Ordering::SeqCst), 0);
    let forever = client(&stack).with_deadline(Duration::MAX);
    assert_eq!(forever.call(1, &[]), Ok(Vec::new()));
}

#[test]
fn a_stack_that_ends_ends_its_calls() {
    let gate = Gate::default();
    let here = Setup::from_text(GRAPH, xk_catalog::PROTOCOLS).here().expect("a stack");
    let _server = here.serve(service(&gate)).expect("taken");
    let client = client(&here).without_deadline();
    let other = client.clone();
    let thread = std::thread::spawn(move || other.call(2, &[]));
    let pending = client.start(2, &[]).expect("begun");
    here.run_for(Duration::from_millis(50)).expect("it turns");
    drop(here);
    gate.open();
    let is_over = |result: Result<Vec<u8>, Error>| {
        let error = result.expect_err("no reply");
        let is_closed = error.cause() == Some(CallCause::Closed);
        let is_over = is_closed || matches!(error.kind, ErrorKind::Ended);
        assert!(is_over || error.cause() == Some(CallCause::Cancelled), "{error}");
    };
    is_over(pending.wait());
    is_over(thread.join().expect("it ends"));
}

fn shared(name: &str, path: &std::path::Path) -> Result<Stack, Error> {
    let path = path.display();
    Stack::from_text(
        format!("host {name} {{ shm path=\"{path}\"; channel shm; select channel; }}"),
        xk_catalog::PROTOCOLS,
    )
}

/// The side that comes first waits for the other; a client alone says so at the deadline; a server
/// that comes back is found again.
#[test]
fn a_client_waits_for_its_server() {
    let path = std::env::temp_dir().join(format!("xk-rpc-load-{}.sock", std::process::id()));
    let b = shared("b", &path).expect("a stack");
    let client = b.client("").expect("a client");
    let began = Instant::now();
    // Long enough for one try on a busy machine.
    let hasty = client.with_deadline(Duration::from_millis(500));
    let error = hasty.call(1, &[]).expect_err("nobody is there");
    assert_eq!(
        error.to_string(),
        "channel: the request was not sent: the peer is unreachable: is the server running?"
    );
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    let pending = client.start(1, b"early").expect("begun");
    let taken_back = client.start(1, b"never").expect("begun");
    taken_back.canceller().cancel();
    let error = taken_back.wait().expect_err("it is taken back");
    assert_eq!(error.cause(), Some(CallCause::Cancelled));
    let serve = || {
        let a = shared("a", &path)?;
        let server = a.serve(service(&Gate::default()))?;
        Ok::<_, Error>((a, server))
    };
    let first = serve().expect("a server");
    assert_eq!(pending.wait(), Ok(b"early".to_vec()));
    drop(first);
    let second = serve().expect("it comes back");
    // What was on its way when the first one left is lost, or has rebooted.
    let began = Instant::now();
    while client.call(1, b"back?").is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    drop(second);
    let _ = std::fs::remove_file(&path);
}
