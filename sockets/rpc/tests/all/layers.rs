//! Calls over layers that name procedures by number alone, on one host and between two.

use std::path::Path;
use std::time::{Duration, Instant};
use xk_rpc::{Call, CallCause, Client, Error, Refusal, Reply, Stack};
use xk_rpcgen::{Options, compile, to_rust};

/// Time of a procedure that is not over when a deadline is, on a busy machine as well; a channel
/// takes its next call behind it.
const LONG_MS: u32 = 2_000;

/// 1 echoes, 2 sleeps elsewhere, 3 says for how many milliseconds the caller waits, if it knows.
fn execute(call: &Call<'_>) -> Result<Reply, Refusal> {
    match call.procedure() {
        1 => Ok(call.octets().into_owned().into()),
        2 => {
            let time = Duration::from_millis(call.arguments::<u32>()?.into());
            call.elsewhere(move || std::thread::sleep(time))?;
            Ok(Reply::empty())
        }
        3 => Reply::of(&call.left().map(|left| Box::new(left.as_millis() as u32))),
        _ => Err(Refusal::NoProcedure),
    }
}

/// Makes calls that succeed and calls that fail; `layer` waits for replies, `top` names procedures.
fn exercise(client: &Client, layer: &str, top: &str) {
    for len in [0, 1, 4, 1000] {
        let octets = vec![0x5a; len];
        assert_eq!(client.call(1, &octets), Ok(octets), "{len}");
    }
    // Program and version mean nothing here.
    let other = client.program(7, 1);
    assert_eq!(other.call(1, b"hello").as_deref(), Ok(&b"hello"[..]));
    let error = client.call(9, &[]).unwrap_err();
    assert!(matches!(error.cause(), Some(CallCause::Rejected(_))), "{error}");
    assert_eq!(error.layer.as_deref(), Some(top), "{error}");

    let threads: Vec<_> = (0..4u8)
        .map(|n| {
            let client = client.clone();
            std::thread::spawn(move || {
                for len in 0..20 {
                    let octets = vec![n; len];
                    assert_eq!(client.call(1, &octets).as_ref(), Ok(&octets));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all replies");
    }

    let late = client.with_deadline(Duration::from_millis(50));
    let began = Instant::now();
    let error = late.call(2, &LONG_MS.to_be_bytes()).unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(LONG_MS.into()), "{error}");
    assert!(matches!(error.cause(), Some(CallCause::TimedOut { .. })), "{error}");
    assert_eq!(error.layer.as_deref(), Some(layer), "{error}");

    let pending = client.start(2, &LONG_MS.to_be_bytes()).expect("begun");
    std::thread::sleep(Duration::from_millis(10));
    pending.canceller().cancel();
    let error = pending.wait().unwrap_err();
    assert_eq!(error.cause(), Some(CallCause::Cancelled), "{error}");
    assert_eq!(client.call(1, b"more").as_deref(), Ok(&b"more"[..]));
}

fn alone(layers: &str) -> Result<(Stack, Client), Error> {
    let stack = Stack::from_text(
        format!(
            r#"host alone {{ loopback; ip loopback {{ address "10.0.0.1/24"; }}; icmp ip; {layers} }}"#
        ),
        xk_catalog::PROTOCOLS,
    )?;
    let client = stack.client("10.0.0.1")?;
    Ok((stack, client))
}

#[test]
fn over_channels() {
    let (stack, client) = alone("fragment ip; channel fragment; select channel").expect("a stack");
    let _server = stack.serve(execute).expect("taken");
    exercise(&client, "channel", "select");
    let left: Option<Box<u32>> = client.invoke(3, &()).expect("a reply");
    assert_eq!(left, None, "no layer says how long the caller waits");
    let large = vec![3; 9000];
    assert_eq!(client.call(1, &large), Ok(large));
}

/// A layer that passes addresses through, at the top and below it.
#[test]
fn over_a_layer_that_names_nothing_itself() {
    let (stack, client) =
        alone("channel ip; deadline channel name=under; select under; deadline select")
            .expect("a stack");
    let _server = stack.serve(execute).expect("taken");
    exercise(&client, "channel", "select");
    let client = client.with_deadline(Duration::from_secs(5));
    let left: Option<Box<u32>> = client.invoke(3, &()).expect("a reply");
    assert!(left.is_some_and(|ms| (1..=5000).contains(&*ms)));
}

#[test]
fn over_the_monolith() {
    let (stack, client) = alone("mrpc ip").expect("a stack");
    let _server = stack.serve(execute).expect("taken");
    exercise(&client, "mrpc", "mrpc");
}

#[test]
fn over_transactions_of_entities() {
    let (stack, client) = alone("vmtp ip").expect("a stack");
    let _server = stack.serve(execute).expect("taken");
    exercise(&client, "vmtp", "vmtp");
    let large = vec![3; 70_000];
    assert_eq!(client.call(1, &large), Ok(large));
}

#[test]
fn between_two_hosts_that_share_memory() {
    let path = std::env::temp_dir().join(format!("xk-rpc-test-{}.sock", std::process::id()));
    let host = |name: &str| {
        let shm = format!("shm path=\"{}\"", path.display());
        Stack::from_text(
            format!("host {name} {{ {shm}; channel shm; select channel; }}"),
            xk_catalog::PROTOCOLS,
        )
    };
    let a = host("a").expect("a stack");
    let server = a.serve(execute).expect("taken");
    let b = host("b").expect("a stack");
    let client = b.client("").expect("a client");
    exercise(&client, "channel", "select");
    drop((server, a));
    // Its thread may still be about to end: until then it serves, or refuses.
    let short = client.with_deadline(Duration::from_millis(200));
    let began = Instant::now();
    let layer = loop {
        let layer = short.call(1, &[]).err().and_then(|error| error.layer);
        if layer.as_deref() == Some("channel") || began.elapsed() > Duration::from_secs(5) {
            break layer;
        }
    };
    assert_eq!(layer.as_deref(), Some("channel"), "nobody is there");
    let _ = std::fs::remove_file(&path);
}

#[path = "../../examples/greeter/main.rs"]
mod greeter;

#[test]
fn the_example_runs_and_is_what_the_compiler_makes() {
    greeter::main().expect("it greets");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/greeter");
    let file = std::fs::read_to_string(folder.join("greeter.x")).expect("a file");
    let compiled = compile("greeter.x", &file).expect("no mistakes");
    let options = Options { file: "greeter.x".into(), types_only: false, included: false };
    let kept = std::fs::read_to_string(folder.join("service.rs")).expect("a file");
    assert!(kept == to_rust(&compiled.model, &options), "xk rpcgen greeter.x --out service.rs");
}
