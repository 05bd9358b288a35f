//! Calls by number and octets: what waits for what, and how it ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use xk_rpc::{Call, CallCause, Client, Program, Refusal, Reply, Setup, Stack};

const GRAPH: &str = r#"host alone {
    loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
    reqrep udp; sunselect reqrep; sunprog sunselect
}"#;
const PEER: &str = "port2051@10.0.0.1";
const PROGRAM: u32 = 0x2000_0042;
/// A procedure that takes so long is not over when the test is, on however busy a machine;
/// its end is not waited for.
const LONG_MS: u32 = 20_000;

fn program<F: Fn(&Call<'_>) -> Result<Reply, Refusal> + Send + 'static>(execute: F) -> Program<F> {
    Program { program: PROGRAM, version: 1, execute }
}

fn client(stack: &Stack) -> Client {
    let client = stack.client(PEER).expect("a client");
    client.program(PROGRAM, 1)
}

/// 1 echoes, 2 sleeps elsewhere, 3 panics, 4 is busy.
fn execute(call: &Call<'_>) -> Result<Reply, Refusal> {
    match call.procedure() {
        1 => Ok(call.octets().into_owned().into()),
        2 => {
            let time = Duration::from_millis(call.arguments::<u32>()?.into());
            let slept = call.elsewhere(move || {
                std::thread::sleep(time);
                time.as_millis() as u32
            })?;
            Reply::of(&slept)
        }
        3 => panic!("as a service may"),
        4 => Err(Refusal::Busy),
        5 => {
            let (promise, later) = call.later::<u32>();
            drop(promise);
            Reply::of(&later.wait()?)
        }
        _ => Err(Refusal::NoProcedure),
    }
}

#[test]
fn octets_there_and_back_from_many_threads() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve_at("port2051", program(execute)).expect("taken");
    let client = client(&stack);
    let threads: Vec<_> = (0..8u8)
        .map(|n| {
            let client = client.clone();
            std::thread::spawn(move || {
                for len in 0..40 {
                    let octets = vec![n; len * 4];
                    assert_eq!(client.call(1, &octets).as_ref(), Ok(&octets));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all replies");
    }
}

#[test]
fn long_work_keeps_nobody_else_waiting() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve_at("port2051", program(execute)).expect("taken");
    let client = client(&stack);
    let long = 300u32;
    let began = Instant::now();
    let sleeping = client.start(2, &long.to_be_bytes()).expect("begun");
    while !sleeping.is_done() {
        assert_eq!(client.call(1, b"meanwhile...").as_deref(), Ok(&b"meanwhile..."[..]));
    }
    assert!(began.elapsed() >= Duration::from_millis(long.into()));
    assert_eq!(sleeping.wait().as_deref(), Ok(&long.to_be_bytes()[..]));
}

#[test]
fn errors_say_at_which_layer() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve_at("port2051", program(execute)).expect("taken");
    let client = client(&stack);
    let says = |procedure| client.call(procedure, &[]).unwrap_err().to_string();
    assert_eq!(says(9), "sunprog: the peer refused the call: no such procedure");
    assert_eq!(says(2), "sunprog: the peer refused the call: garbage arguments");
    assert_eq!(says(3), "sunprog: the peer refused the call: system error");
    assert_eq!(says(4), "sunprog: the peer refused the call: system error");
    assert_eq!(says(5), "sunprog: the peer refused the call: system error");
    let other = client.program(7, 1).call(1, &[]).unwrap_err();
    assert_eq!(other.to_string(), "sunprog: the peer refused the call: no such program");

    let late = client.with_deadline(Duration::from_millis(50));
    let began = Instant::now();
    let error = late.call(2, &LONG_MS.to_be_bytes()).unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(LONG_MS.into()), "{:?}", began.elapsed());
    assert!(matches!(error.cause(), Some(CallCause::TimedOut { .. })), "{error}");
    assert_eq!(error.layer.as_deref(), Some("reqrep"));
}

#[test]
fn a_call_is_taken_back_from_another_thread_or_by_dropping_it() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let _server = stack.serve_at("port2051", program(execute)).expect("taken");
    let client = client(&stack);
    let pending = client.start(2, &LONG_MS.to_be_bytes()).expect("begun");
    let canceller = pending.canceller();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        canceller.cancel();
    });
    let began = Instant::now();
    let error = pending.wait().unwrap_err();
    assert_eq!(error.cause(), Some(CallCause::Cancelled));
    assert!(began.elapsed() < Duration::from_millis(LONG_MS.into()));
    thread.join().expect("cancelled");
    drop(client.start(2, &LONG_MS.to_be_bytes()).expect("begun"));
    assert_eq!(client.call(1, b"more").as_deref(), Ok(&b"more"[..]));
}

/// A service that calls itself, by a client of the stack it runs on.
#[test]
fn a_service_may_call() {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let own = client(&stack);
    let depth = Arc::new(AtomicU32::new(0));
    let deepest = Arc::clone(&depth);
    let server = program(move |call: &Call<'_>| {
        let left: u32 = call.arguments()?;
        deepest.fetch_max(left, Ordering::SeqCst);
        match left {
            0 => Reply::of(&1u32),
            left => {
                let reply: u32 = own.invoke(1, &(left - 1))?;
                Reply::of(&(reply * 2))
            }
        }
    });
    let server = stack.serve_at("port2051", server).expect("taken");
    assert_eq!(client(&stack).invoke(1, &10u32), Ok(1024u32));
    assert_eq!(depth.load(Ordering::SeqCst), 10);
    drop(server);
    // As long as sessions of its clients are there the port answers, and then it does not.
    let late = client(&stack).with_deadline(Duration::from_millis(200));
    let error = late.call(1, &[0; 4]).unwrap_err();
    assert!(matches!(error.layer.as_deref(), Some("sunprog" | "reqrep")), "{error}");
}

#[test]
fn without_another_thread() {
    let here = Setup::from_text(GRAPH, xk_catalog::PROTOCOLS).here().expect("a stack");
    let _server = here.serve_at("port2051", program(execute)).expect("taken");
    let client = client(&here);
    assert_eq!(client.call(1, b"hello...").as_deref(), Ok(&b"hello..."[..]));
    // Another thread's calls are made while this one turns the loop.
    let (answer, answered) = mpsc::channel();
    let other = client.clone();
    let thread = std::thread::spawn(move || answer.send(other.call(1, b"from another")));
    while answered.try_recv().map_or(true, |reply| {
        assert_eq!(reply.as_deref(), Ok(&b"from another"[..]));
        false
    }) {
        here.run_for(Duration::from_millis(1)).expect("it turns");
    }
    thread.join().expect("joined").expect("sent");
    drop(here);
    assert_eq!(client.call(1, &[]).unwrap_err().to_string(), "the stack has ended");
}

#[test]
fn what_a_graph_lacks_is_said() {
    let text = "host alone { loopback; }";
    let error = Stack::from_text(text, xk_catalog::PROTOCOLS).err().expect("no calls");
    assert!(error.to_string().contains("no layer that takes calls"), "{error}");
    let error = Stack::from_text("host a { nothing; }", xk_catalog::PROTOCOLS).err().expect("none");
    assert!(error.to_string().contains("nothing"), "{error}");
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS).expect("a stack");
    let error = stack.client("no such thing").expect_err("no peer");
    assert!(error.to_string().contains("no participant"), "{error}");
    let error = stack.client(PEER).expect("a client").call(1, &[]).unwrap_err();
    assert!(error.to_string().contains("name program and version"), "{error}");
}

/// ONC RPC on the machine's UDP, where 127.255.255.255 is all hosts of the loopback: this one.
const OVER_HOST: &str =
    "host here { host-udp; reqrep host-udp; sunselect reqrep; sunprog sunselect; }";

#[test]
fn all_hosts_are_called_and_the_replies_come_one_by_one() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its number").port();
    drop(socket);
    let serving = Stack::from_text(OVER_HOST, xk_catalog::PROTOCOLS).expect("a stack");
    let at = format!("port{port}");
    let server = serving.serve_at(&at, program(execute)).expect("taken");
    let to = format!("port{port}@127.255.255.255");
    // Longer than a reply takes on a busy machine.
    let time = Duration::from_secs(4);
    let everyone = |stack: &Stack| {
        let client = stack.client(&to).expect("a client");
        client.program(PROGRAM, 1).with_deadline(time)
    };
    let reply = |replies: &mut xk_rpc::Replies| {
        let reply = replies.next().expect("a reply").expect("no error");
        assert_eq!(reply.host, std::net::Ipv4Addr::LOCALHOST);
        assert_eq!((reply.port, &reply.octets[..]), (port, &b"hi!!"[..]));
    };
    let stack = Stack::from_text(OVER_HOST, xk_catalog::PROTOCOLS).expect("a stack");
    let client = everyone(&stack);
    // Two at once, and one that is not heard to its end.
    let mut both = [client.broadcast(1, b"hi!!"), client.broadcast(1, b"hi!!")];
    both.iter_mut().for_each(reply);
    let begun = Instant::now();
    reply(&mut client.broadcast(1, b"hi!!"));
    assert!(begun.elapsed() < time, "it does not wait for others");
    for replies in &mut both {
        assert!(replies.next().is_none() && replies.next().is_none());
        assert_eq!(replies.refused(), 0);
    }
    // What is refused is refused in silence; the same from the thread that drives the stack.
    let brief = client.with_deadline(Duration::from_millis(100));
    assert!(brief.broadcast(9, b"").next().is_none());
    let here = Setup::from_text(OVER_HOST, xk_catalog::PROTOCOLS).here().expect("a stack");
    reply(&mut everyone(&here).broadcast(1, b"hi!!"));
    let brief = everyone(&here).with_deadline(Duration::from_millis(100));
    assert!(brief.broadcast(9, b"").next().is_none());
    // One host is not many.
    let one = stack.client(&format!("port{port}@127.0.0.1"));
    let one = one.expect("a client").program(PROGRAM, 1);
    let error = one.broadcast(1, b"").next().expect("an end");
    let told = error.expect_err("an error").to_string();
    assert!(told.contains("only of a broadcast"), "{told}");
    assert_eq!(one.call(1, b"hi!!").expect("a reply"), b"hi!!");
    drop(server);
}
