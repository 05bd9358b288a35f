//! Tests of what services that have ended leave in a stack.

use crate::{Call, Program, Refusal, Reply, Service, Setup};

const PROCEDURES: &str = r#"host alone { loopback; channel loopback; select channel; }"#;
const PROGRAMS: &str = r#"host alone {
    loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
    reqrep udp; sunselect reqrep; sunprog sunselect
}"#;

/// Answers `number`, as the service of that number.
fn says(number: u32) -> impl Fn(&Call<'_>) -> Result<Reply, Refusal> + Send + 'static {
    move |_: &Call<'_>| Reply::of(&number)
}

/// Serves and ends a thousand times, and calls each; how many protocol objects there are more than
/// after the first.
fn rounds<S: Service>(
    graph: &str,
    (peer, local): (&str, &str),
    service: impl Fn(u32) -> S,
) -> usize {
    let here = Setup::from_text(graph, xk_catalog::PROTOCOLS).here().expect("a stack");
    let client = here.client(peer).expect("a client").program(0x2000_0001, 1);
    let mut first = None;
    for round in 0..1000 {
        let server = here.serve_at(local, service(round)).expect("taken");
        assert_eq!(client.invoke(1, &()), Ok(round), "the service of this round");
        drop(server);
        let count = here.local.kernel.protocols().len();
        first.get_or_insert(count);
    }
    here.local.kernel.protocols().len() - first.expect("rounds")
}

#[test]
fn services_that_have_ended_leave_nothing() {
    assert_eq!(rounds(PROCEDURES, ("", ""), says), 0);
    let program = |round| Program { program: 0x2000_0001, version: 1, execute: says(round) };
    let peer = ("port2051@10.0.0.1", "port2051");
    assert_eq!(rounds(PROGRAMS, peer, program), 0);
}

/// A service that is refused takes no object, and the one that serves is not disturbed.
#[test]
fn services_that_are_refused_leave_nothing() {
    let here = Setup::from_text(PROCEDURES, xk_catalog::PROTOCOLS).here().expect("a stack");
    let _first = here.serve(says(1)).expect("taken");
    assert!(here.serve(says(2)).is_err(), "there is one already");
    let count = here.local.kernel.protocols().len();
    for _ in 0..100 {
        assert!(here.serve(says(2)).is_err(), "there is one already");
    }
    assert_eq!(here.local.kernel.protocols().len(), count);
    let client = here.client("").expect("a client");
    assert_eq!(client.invoke(1, &()), Ok(1u32));
}

/// A service that follows on one of another program gets no calls of that one.
#[test]
fn another_program_gets_no_calls_of_the_one_before() {
    let here = Setup::from_text(PROGRAMS, xk_catalog::PROTOCOLS).here().expect("a stack");
    let serve = |program| {
        let execute = says(program);
        let version = 1;
        here.serve_at("port2051", Program { program, version, execute })
    };
    let client = here.client("port2051@10.0.0.1").expect("a client");
    let client = |program| client.program(program, 1);
    let first = serve(7).expect("taken");
    assert_eq!(client(7).invoke(1, &()), Ok(7u32));
    drop(first);
    let _second = serve(8).expect("taken");
    let error = client(7).call(1, &[]).expect_err("it has ended");
    assert_eq!(error.to_string(), "sunprog: the peer refused the call: no such program");
    assert_eq!(client(8).invoke(1, &()), Ok(8u32));
}
