//! A service and its client, by the Rust that `xk rpcgen` makes of a file:
//! `cargo run -p xk-rpc --example greeter`
//!
//! Both are on one host here. Between two programs each has a stack of its own, from a graph with
//! another link below, and nothing else changes.

// Written by: xk rpcgen greeter.x --out service.rs
// As the compiler prints it.
#[rustfmt::skip]
mod service;

use service::{Greeter1, Greeter1Client, Greeter1Server, Greeting};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xk_rpc::{Call, Error, Refusal, Stack, xdr};

/// ONC RPC over UDP, from this host to itself.
const GRAPH: &str = r#"host alone {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    udp ip
    reqrep udp
    sunselect reqrep
    sunprog sunselect
}"#;
/// More greetings than this are too many.
const TIMES_MAX: u32 = 10;

/// Greets, and counts.
#[derive(Default)]
struct Greeter {
    count: AtomicU64,
}

impl Greeter1 for Greeter {
    fn greet(&self, _: &Call<'_>, greeting: Greeting) -> Result<xdr::Text, Refusal> {
        if greeting.times > TIMES_MAX {
            return Err(Refusal::BadArguments);
        }
        self.count.fetch_add(greeting.times.into(), Ordering::Relaxed);
        let hello = format!("Hello, {}! ", greeting.to.to_str_lossy());
        let all = hello.repeat(greeting.times as usize);
        Ok(all.trim_end().into())
    }

    fn count(&self, _: &Call<'_>) -> Result<u64, Refusal> {
        Ok(self.count.load(Ordering::Relaxed))
    }
}

/// Serves and calls.
pub(crate) fn main() -> Result<(), Error> {
    let stack = Stack::from_text(GRAPH, xk_catalog::PROTOCOLS)?;
    let _server = stack.serve_at("port2049", Greeter1Server(Greeter::default()))?;

    let client = stack.client("port2049@10.0.0.1")?;
    let greeter = Greeter1Client::new(&client.with_deadline(Duration::from_secs(1)));
    let to = |name: &str, times| Greeting { to: name.into(), times };
    let greetings = greeter.greet(to("world", 2))?;
    assert_eq!(greetings.as_str(), Ok("Hello, world! Hello, world!"));
    println!("{}", greetings.to_str_lossy());
    match greeter.greet(to("everybody", 1000)) {
        Err(error) => println!("not that often: {error}"),
        Ok(_) => unreachable!("it refuses that"),
    }
    assert_eq!(greeter.count()?, 2);
    Ok(())
}
