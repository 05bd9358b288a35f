//! Opens at one time, on a layer below that blocks, while the table is full: what is known of
//! identifiers agrees with the sessions that there are.

use core::time::Duration;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Participants};
use xk_testkit::conformance::bounded;
use xk_testkit::kernel::{Bottom, Lower, Task, TestKernel, Top};

/// Opens and closes, a few times, sessions of one upper with two hosts.
fn opens(protocol: xk_core::ProtocolRef, top: Top) -> Task {
    Box::new(move |cx: &Kernel| {
        for _ in 0..6 {
            let host = 2 + cx.random().below(2);
            let ends: Participants = format!("*, 10.0.0.{host}").parse().expect("hosts");
            let opened = top.open(cx, &protocol, ends.clone());
            let pause = Duration::from_nanos(cx.random().below(2_000_000));
            let _ = cx.wait(&Semaphore::new(0), Some(pause));
            let Ok(session) = opened else {
                continue;
            };
            let again = top.open(cx, &protocol, ends).expect("it is there");
            assert_eq!(again, session, "one upper has one session with a host");
            again.close(cx);
            session.close(cx);
        }
    })
}

#[test]
fn each_identifier_is_of_one_session() {
    for seed in 0..200 {
        let cx = TestKernel::with_stacks(seed);
        let bottom = Bottom::add(&cx, "ip", Lower::host([10, 0, 0, 1], 1));
        let params = bounded(&xk_icmp::ENTRY, 2);
        let lowers = core::slice::from_ref(bottom.protocol());
        let icmp = xk_icmp::ENTRY.add(&cx, "icmp", lowers, &params).expect("it is built");
        cx.start().expect("it starts");
        bottom.block(Duration::from_millis(1));
        let tops = ["a", "b"].map(|name| Top::add(&cx, name));
        let tasks = (0..6).map(|n| opens(icmp.clone(), tops[n % 2].clone())).collect();
        assert!(cx.run_tasks(Duration::from_secs(60), tasks, |_| 0), "seed {seed}: all end");
        let sessions = icmp.ask(&cx, ListSessions::first(9)).expect("sessions");
        let maps = icmp.ask(&cx, ListMaps::default()).expect("maps").maps;
        let owners = maps.iter().find(|(name, _)| *name == "owners").expect("a map").1.entries;
        assert_eq!(owners, sessions.total, "seed {seed}: identifiers and sessions");
        cx.stop();
    }
}
