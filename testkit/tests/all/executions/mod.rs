//! Calls are executed at most once, exactly once or at least once: stacks of the rpc realm in a bad
//! network, whose hosts crash and come back under new boot ids, against a model that counts
//! executions.
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
//! The seeds are those of [`xk_testkit::seeds`].

mod apps;
mod model;
mod plan;
mod world;

use core::time::Duration;
use plan::Stack;
use world::{simulate, simulate_plan};
use xk_appletalk::atp::Want;
use xk_testkit::seeds;

/// The cost of a seed.
const COST: u64 = 5;
/// The cost with which there are more seeds than pairs of nine configurations.
const COST_PAIRS: u64 = 3;

/// Runs seeds, each over its stack.
fn sweep(stack_of: impl Fn(u64) -> Stack, cost: u64) {
    let Stack { name, is_of_one_boot, .. } = stack_of(0);
    let sum = seeds::of(cost).sum(|seed| {
        let stack = stack_of(seed);
        let counts = simulate(&stack, seed);
        let counts = counts.unwrap_or_else(|what| panic!("{name}: {what}\n{}", stack.graph));
        let model::Counts { calls, replies, failures, crashes, .. } = counts;
        [1, calls, replies, failures, crashes]
    });
    if let Some(sum @ [count, _, replies, failures, crashes]) = sum {
        let what = format!("{name}: seeds, calls, replies, failures, crashes: {sum:?}");
        println!("{what}");
        assert!(replies > count, "most calls bring a reply: {what}");
        assert!(crashes > count / 2, "hosts crash: {what}");
        assert!(failures > 0 || is_of_one_boot, "some calls fail: {what}");
    }
}

/// Seeds that make each pair of nine configurations once.
const SEEDS_PAIRS: u64 = 81;

/// ATP and DDP of three subsystems talk to one another.
#[test]
fn atp_nine() {
    sweep(plan::atp_nine, COST_PAIRS);
}

#[test]
fn atp_nine_at_least_once() {
    sweep(plan::atp_nine_at_least_once, COST_PAIRS);
}

/// A request is executed no second time because its reply cannot be sent.
#[test]
fn atp_nine_too_big() {
    sweep(plan::atp_nine_too_big, COST_PAIRS);
}

/// Exactly once is what every ATP is set to, also where the protocol above knows of no
/// transactions.
#[test]
fn atp_nine_as_the_graph_says() {
    sweep(plan::atp_nine_as_the_graph_says, COST_PAIRS);
}

/// A graph that asks for at least once gets it: calls are executed twice by each ATP that obeys
/// `xo`.
#[test]
fn a_graph_that_asks_for_at_least_once_gets_it() {
    for of in 0..9 {
        let stacks = (of..SEEDS_PAIRS).step_by(9).map(|seed| {
            let stack = plan::atp_nine_as_the_graph_says(seed);
            let graph = stack.graph.replace("atp ddp", "atp ddp xo=#false");
            (seed, Stack { graph, ..stack })
        });
        let mut found = stacks.filter_map(|(seed, stack)| simulate(&stack, seed).err());
        assert!(found.any(|what| what.contains("was executed twice")), "configuration {of}");
    }
}

macro_rules! stacks {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            sweep(|_| plan::$name(), COST);
        })*
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
    sun_vmtp,
    vmtp,
    vmtp_vip,
);

/// Limit of ATP's exactly once: a request that comes again after the responder's release timer has
/// run out is a new one, in every subsystem (Inside AppleTalk, chapter 9). A request that comes
/// again before that is not.
#[test]
fn a_request_that_comes_after_the_release_timer_is_executed_twice() {
    let plan = plan::Plan::of_a_lost_reply();
    for (client, server) in (0..9).map(|at| ((at + 4) % 9, at)) {
        for (seconds, executions) in [(20, 1), (40, 2)] {
            let stack = plan::nine([client, client, server]);
            let interval = Duration::from_secs(seconds);
            let want = stack.want.map(|want| Want { interval, ..want });
            let promise = plan::Promise::AtLeastOnce;
            let stack = Stack { promise, want, ..stack };
            let counts = simulate_plan(&stack, 1, &plan).unwrap_or_else(|what| panic!("{what}"));
            let found = (counts.replies, counts.executions);
            assert_eq!(found, (1, executions), "again after {seconds} s:\n{}", stack.graph);
        }
    }
}

/// Transactions that are executed at least once are executed twice, and the model sees it.
#[test]
fn a_transaction_that_is_executed_twice_is_found_out() {
    let promise = plan::Promise::OnceUntilReleased;
    let stack = Stack { promise, ..plan::atp_udp_at_least_once() };
    let found = (0..60).find_map(|seed| simulate(&stack, seed).err());
    let found = found.expect("ATP executes some call twice at least");
    assert!(found.contains("was executed twice"), "{found}");
}

/// The model is worth something only if it sees what it looks for.
#[test]
fn a_stack_that_executes_twice_is_found_out() {
    let stack = Stack { promise: plan::Promise::AtMostOnce, ..plan::sun_udp() };
    let found = (0..60).find_map(|seed| simulate(&stack, seed).err());
    let found = found.expect("REQUEST.REPLY executes some call twice");
    assert!(found.contains("was executed twice"), "{found}");
}
