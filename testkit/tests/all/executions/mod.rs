//! At most once, exactly once, at least once: stacks of the rpc realm in a bad network, whose hosts
//! crash and come back under new boot ids, against a model that counts executions.
//!
//! One seed makes a plan: what the link does to frames, partitions, when server and clients crash
//! and for how long, and calls of many sizes to a procedure that takes a while. Every call has a
//! number of its own, which the request carries and the model knows. The server notes each
//! execution. What must hold, at the end of every seed:
//!
//! - over a stack of at most once, no call was executed twice, whatever crashed;
//! - over ATP with exactly once, no call was executed twice before its caller had the reply, unless
//!   the server crashed;
//! - a call that brought a reply was executed, over such a stack exactly once, and the reply is the
//!   one to this call;
//! - every call of a client that lives has come to an end;
//! - once nothing fails any more, a call gets through.
//!
//! The ordinary run takes some hundred seeds; ten thousand: `cargo test --release -p xk-testkit
//! --test all executions -- --ignored`. `XK_SEED=N` replays one, `XK_SEEDS=N` takes so many.

mod apps;
mod model;
mod plan;
mod world;

use plan::Stack;
use world::simulate;

/// Seeds of the ordinary run, for each stack, and of the long one.
const SEEDS: u64 = 60;
const SEEDS_LONG: u64 = 10_000;

/// Runs a range of seeds over a stack, or the one that `XK_SEED` names.
fn sweep(stack: &Stack, seeds: u64) {
    let of = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (wanted, seeds) = (of("XK_SEED"), of("XK_SEEDS").unwrap_or(seeds));
    let range = wanted.map_or(0..seeds, |seed: u64| seed..seed + 1);
    let mut sum = model::Counts::default();
    for seed in range {
        match simulate(stack, seed) {
            Ok(counts) => sum.add(counts),
            Err(what) => panic!(
                "{}, seed {seed}: {what}\nreplay: XK_SEED={seed} cargo test -p xk-testkit --test all executions::{}\n{}",
                stack.name, stack.name, stack.graph
            ),
        }
    }
    println!("{}: {sum:?}", stack.name);
    if wanted.is_none() {
        assert!(sum.replies > seeds, "most calls bring a reply: {sum:?}");
        assert!(sum.crashes > seeds / 2, "hosts crash: {sum:?}");
        assert!(sum.failures > 0 || stack.is_of_one_boot, "some calls fail: {sum:?}");
    }
}

macro_rules! stacks {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            sweep(&plan::$name(), SEEDS);
        })*

        mod ten_thousand {
            $(#[test]
            #[ignore = "takes minutes"]
            fn $name() {
                super::sweep(&super::plan::$name(), super::SEEDS_LONG);
            })*
        }
    };
}

stacks!(
    asp,
    atp_ddp,
    atp_udp,
    atp_udp_at_least_once,
    mrpc,
    rdgram,
    select_channel,
    select_channel_fragment,
    select_channel_fragment_vip,
    select_channel_vipsize,
    sun_auth_channel,
    sun_auth_portmap,
    sun_channel,
    sun_fragment,
    sun_udp,
);

/// Transactions that are executed at least once are executed twice, and the model sees it.
#[test]
fn a_transaction_that_is_executed_twice_is_found_out() {
    let promise = plan::Promise::OnceUntilReleased;
    let stack = Stack { promise, ..plan::atp_udp_at_least_once() };
    let found = (0..SEEDS).find_map(|seed| simulate(&stack, seed).err());
    let found = found.expect("ATP executes some call twice at least");
    assert!(found.contains("was executed twice"), "{found}");
}

/// The model is worth something only if it sees what it looks for.
#[test]
fn a_stack_that_executes_twice_is_found_out() {
    let stack = Stack { promise: plan::Promise::AtMostOnce, ..plan::sun_udp() };
    let found = (0..SEEDS).find_map(|seed| simulate(&stack, seed).err());
    let found = found.expect("REQUEST.REPLY executes some call twice");
    assert!(found.contains("was executed twice"), "{found}");
}
