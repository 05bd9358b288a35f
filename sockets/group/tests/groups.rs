//! Groups of programs in the simulator, and two on real wires.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;
use xk_core::random::Random;
use xk_group::{Event, Group, Options, blocking};
use xk_net::{Conversation, Joining, Setup, Stack, Thread};
use xk_world::{Outcome, Result, World, seeds};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const LOSSY: &str = r#"delay="2ms" jitter="3ms" loss="20%""#;
const QUIET: &str = r#"delay="2ms""#;
const LIMIT: Duration = Duration::from_secs(120);

/// The page about groups shows the example of the crate's documentation, which runs as a test.
#[test]
fn the_page_shows_what_runs() {
    let documented = include_str!("../src/lib.rs").split("//! ```\n").nth(1).unwrap_or_default();
    let lines = documented.lines().map(|line| line.trim_start_matches("//!"));
    let shown: String =
        lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    assert!(shown.lines().count() <= 40, "{} lines", shown.lines().count());
    assert!(include_str!("../../../docs/groups.md").contains(&format!("```rust\n{shown}```\n")));
}

fn members(count: usize) -> Vec<String> {
    NAMES[..count].iter().map(|name| format!("{name}:4000")).collect()
}

fn options(is_total: bool, me: usize, count: usize) -> Result<Options> {
    let members = members(count);
    Ok(if is_total { Options::total(me, &members) } else { Options::partial(me, &members) }?)
}

/// Messages by member, as all members heard them.
type Heard = Rc<RefCell<HashMap<usize, Vec<(usize, Vec<u8>)>>>>;

/// Has each of `count` members send `each` messages, with the number of the message in it, and
/// returns what each heard.
fn talk(seed: u64, count: usize, each: u32, is_total: bool) -> Result<(Outcome, Heard)> {
    let mut world = World::lan(seed, &NAMES[..count], LOSSY)?;
    let heard = Heard::default();
    for (me, host) in NAMES[..count].iter().enumerate() {
        let all = Rc::clone(&heard);
        world.client(host, move |stack| {
            let all = Rc::clone(&all);
            async move {
                let options = options(is_total, me, count)?;
                let mut group = Group::join(&stack, options)?;
                let (mut sent, mut left) = (0, each as usize * count);
                while left > 0 {
                    // A message for each that is heard, so that causes are many.
                    if sent < each {
                        group.send(&sent.to_be_bytes()).await?;
                        sent += 1;
                    }
                    if let Event::Message { from, octets, .. } = group.recv().await? {
                        all.borrow_mut().entry(me).or_default().push((from, octets));
                        left -= 1;
                    }
                }
                group.leave().await?;
                Ok(())
            }
        })?;
    }
    Ok((world.run(LIMIT)?, heard))
}

fn assert_all_once(heard: &Heard, count: usize, each: u32) {
    let heard = heard.borrow();
    for me in 0..count {
        for sender in 0..count {
            let of_one = heard[&me].iter().filter(|(from, _)| *from == sender);
            let numbers: Vec<&[u8]> = of_one.map(|(_, octets)| &octets[..]).collect();
            let all: Vec<[u8; 4]> = (0..each).map(u32::to_be_bytes).collect();
            assert!(numbers.iter().eq(&all), "{sender}'s at {me}: {numbers:?}");
        }
    }
}

#[test]
fn all_hear_one_order() {
    seeds(0..20, |seed| {
        let count = 2 + seed as usize % 4;
        let (outcome, heard) = talk(seed, count, 12, true)?;
        assert_all_once(&heard, count, 12);
        let heard = heard.borrow();
        for me in 1..count {
            assert_eq!(heard[&me], heard[&0], "{me} and 0");
        }
        Ok(outcome)
    });
}

#[test]
fn all_hear_all_in_partial_order() {
    seeds(100..120, |seed| {
        let count = 2 + seed as usize % 4;
        let (outcome, heard) = talk(seed, count, 12, false)?;
        assert_all_once(&heard, count, 12);
        Ok(outcome)
    });
}

#[test]
fn an_answer_is_heard_after_its_question() {
    seeds(200..230, |seed| {
        let mut world = World::lan(seed, &NAMES[..3], LOSSY)?;
        for (me, host) in NAMES[..3].iter().enumerate() {
            world.client(host, move |stack| async move {
                let mut group = Group::join(&stack, Options::partial(me, &members(3))?)?;
                if me == 0 {
                    group.send(b"question").await?;
                }
                let (mut texts, mut depths) = (Vec::new(), Vec::new());
                while texts.len() < 2 {
                    if let Event::Message { octets, depth, .. } = group.recv().await? {
                        if me == 1 && octets == b"question" {
                            group.send(b"answer").await?;
                        }
                        texts.push(octets);
                        depths.push(depth);
                    }
                }
                assert_eq!(texts, [&b"question"[..], b"answer"]);
                assert!(depths[0] < depths[1], "{depths:?}");
                group.leave().await?;
                Ok(())
            })?;
        }
        world.run(LIMIT)
    });
}

/// A member that takes nothing has the sender wait; it loses nothing, and nothing grows.
#[test]
fn a_slow_member_holds_up_the_sender() {
    seeds(300..303, |seed| {
        const COUNT: u32 = 2000;
        let mut world = World::lan(seed, &NAMES[..2], QUIET)?;
        let sent = Rc::new(std::cell::Cell::new(0));
        let theirs = Rc::clone(&sent);
        world.client("a", move |stack| {
            let sent = Rc::clone(&theirs);
            async move {
                let group = Group::join(&stack, Options::partial(0, &members(2))?)?;
                for number in 0..COUNT {
                    group.send(&number.to_be_bytes()).await?;
                    sent.set(number + 1);
                }
                group.leave().await?;
                Ok(())
            }
        })?;
        world.client("b", move |stack| {
            let sent = Rc::clone(&sent);
            async move {
                let mut group = Group::join(&stack, Options::partial(1, &members(2))?)?;
                tokio::time::sleep(Duration::from_secs(5)).await;
                // As many events as are kept, and the windows of both ends.
                assert!(sent.get() > 0 && sent.get() < 600, "{} were sent", sent.get());
                let mut next = 0u32;
                while next < COUNT {
                    if let Event::Message { from: 0, octets, .. } = group.recv().await? {
                        assert_eq!(octets, next.to_be_bytes());
                        next += 1;
                    }
                }
                group.leave().await?;
                Ok(())
            }
        })?;
        world.run(LIMIT)
    });
}

/// Members leave in the middle: the others hear so, wait for them no longer, and hear the same.
#[test]
fn the_others_go_on_without_members_that_leave() {
    for (is_total, agrees) in [(true, false), (false, false), (true, true), (false, true)] {
        seeds(600..620, move |seed| {
            let random = Random::new(seed);
            let count = 2 + seed as usize % 4;
            let whole = u64::MAX >> (64 - count);
            let leaving = 1 + random.below(whole - 1);
            let mut world = match agrees {
                true => with_membership(seed, count, LOSSY)?,
                false => World::lan(seed, &NAMES[..count], LOSSY)?,
            };
            let heard = Rc::new(RefCell::new(Vec::new()));
            for (me, host) in NAMES[..count].iter().enumerate() {
                let all = Rc::clone(&heard);
                world.client(host, move |stack| {
                    let all = Rc::clone(&all);
                    async move {
                        let options = options(is_total, me, count)?;
                        let mut group = Group::join(&stack, options)?;
                        for number in 0..5u8 {
                            group.send(&[number]).await?;
                        }
                        if leaving >> me & 1 != 0 {
                            return Ok(group.leave().await?);
                        }
                        let (mut heard, mut left) = (Vec::new(), whole);
                        while heard.len() < 5 * count || left & leaving != 0 {
                            match group.recv().await? {
                                Event::Message { from, octets, .. } => heard.push((from, octets)),
                                Event::View { members, has_quorum } => {
                                    assert!(
                                        members & !left == 0 && has_quorum,
                                        "{me}: {members:b} after {left:b}"
                                    );
                                    left = members;
                                }
                                other => return Err(format!("{other:?}").into()),
                            }
                        }
                        all.borrow_mut().push(heard);
                        Ok(group.leave().await?)
                    }
                })?;
            }
            let outcome = world.run(LIMIT)?;
            let mut heard = heard.borrow_mut();
            if !is_total {
                heard.iter_mut().for_each(|heard| heard.sort());
            }
            let staying = (whole & !leaving).count_ones() as usize;
            assert!(heard.len() == staying && heard.iter().all(|other| *other == heard[0]));
            // None has waited for another that had gone.
            assert!(outcome.now < xk_core::Time::ZERO.after(Duration::from_secs(9)), "{outcome:?}");
            Ok(outcome)
        });
    }
}

/// A world of hosts with `membership`.
fn with_membership(seed: u64, count: usize, link: &str) -> Result<World> {
    let hosts = NAMES.iter().zip(1..).take(count).map(|(name, number)| {
        format!(
            r#"host {name} {{
                sim link=lan
                eth sim
                arp eth
                ip arp {{ address "10.0.0.{number}/24"; }}
                icmp ip
                udp ip
                psync udp
                membership psync
                order membership
            }}
            "#
        )
    });
    let text = format!("{}link lan {link}\n", hosts.collect::<String>());
    World::from_text(seed, &text, xk_world::PROTOCOLS)
}

/// The others hear that a member has failed, and then go on without it.
#[test]
fn the_others_go_on_without_a_member_that_fails() {
    seeds(500..510, |seed| {
        let mut world = with_membership(seed, 3, QUIET)?;
        for (me, host) in NAMES[..2].iter().enumerate() {
            world.client(host, move |stack| async move {
                let mut group = Group::join(&stack, Options::total(me, &members(3))?)?;
                group.send(b"before").await?;
                let (mut before, mut after, mut views) = (0, 0, Vec::new());
                while after < 2 {
                    match group.recv().await? {
                        Event::Message { octets, .. } if octets == b"before" => before += 1,
                        Event::Message { .. } => after += 1,
                        Event::View { members, has_quorum } => {
                            views.push((members, has_quorum));
                            if members == 0b011 {
                                group.send(b"after").await?;
                            }
                        }
                        other => return Err(format!("{other:?}").into()),
                    }
                }
                assert_eq!((before, views), (3, vec![(0b111, true), (0b011, true)]));
                Ok(())
            })?;
        }
        world.host("c", move |stack| async move {
            let mut group = Group::join(&stack, Options::total(2, &members(3))?)?;
            group.send(b"before").await?;
            loop {
                group.recv().await?;
            }
        })?;
        world.run_for(Duration::from_secs(1))?;
        world.crash("c")?;
        world.run(LIMIT)
    });
}

/// A member whose host crashes and starts again, the first one as well, is given the state of the
/// others, and has the same as they do from then on.
#[test]
fn a_program_that_comes_back_is_given_the_state_of_the_others() {
    const EACH: usize = 150;
    seeds(700..706, |seed| {
        let failing = seed as usize % 3;
        let mut world = with_membership(seed, 3, LOSSY)?;
        let states: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let was_started = Rc::new(std::cell::Cell::new(false));
        for (me, host) in NAMES[..3].iter().enumerate() {
            let (states, was_started) = (Rc::clone(&states), Rc::clone(&was_started));
            let program = move |stack| {
                let states = Rc::clone(&states);
                let is_back = me == failing && was_started.replace(me == failing);
                async move {
                    let options = Options::total(me, &members(3))?.with_state();
                    let options = if is_back { options.returning() } else { options };
                    let mut group = Group::join(&stack, options)?;
                    let (mut state, mut sent) = (Vec::new(), 0);
                    // The last message is of the one that has come back, and has had the others'.
                    let mut tick = tokio::time::interval(Duration::from_millis(50));
                    while state.last() != Some(&b'!') {
                        let event = tokio::select! {
                            event = group.recv() => Some(event?),
                            _ = tick.tick() => None,
                        };
                        match event {
                            None if me != failing && sent < EACH => {
                                group.send(&[b'a' + me as u8]).await?;
                                sent += 1;
                            }
                            None | Some(Event::View { .. }) => {}
                            Some(Event::Message { octets, .. }) => state.extend(octets),
                            Some(Event::Returned(it)) => group.give(it, &state)?,
                            Some(Event::State(given)) => {
                                assert!(is_back && state.is_empty(), "{state:?}");
                                state = given;
                            }
                        }
                        if is_back && state.len() == 2 * EACH {
                            group.send(b"!").await?;
                        }
                    }
                    states.borrow_mut().push(state);
                    Ok(group.leave().await?)
                }
            };
            match me == failing {
                true => world.host(host, program)?,
                false => world.client(host, program)?,
            }
        }
        world.run_for(Duration::from_secs(2))?;
        world.crash(NAMES[failing])?;
        world.run_for(Duration::from_millis(500 + 700 * (seed % 5)))?;
        world.restart(NAMES[failing])?;
        let outcome = world.run(LIMIT)?;
        let states = states.borrow();
        assert!(states.len() >= 2 && states.iter().all(|state| *state == states[0]));
        assert_eq!(states[0].len(), 2 * EACH + 1);
        Ok(outcome)
    });
}

#[test]
fn what_cannot_be_is_refused() {
    seeds(400..401, |seed| {
        let mut world = World::lan(seed, &NAMES[..2], QUIET)?;
        for (me, host) in NAMES[..2].iter().enumerate() {
            world.client(host, move |stack| async move {
                let join = |options| Group::join(&stack, options).map(drop);
                let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
                assert_eq!(kind(join(Options::total(0, &members(1))?)), ErrorKind::InvalidInput);
                assert_eq!(kind(join(Options::total(2, &members(2))?)), ErrorKind::InvalidInput);
                let unknown = Options::total(0, &["a:4000", "nowhere:4000"]);
                assert!(unknown.is_err());
                let mut group = Group::join(&stack, Options::total(me, &members(2))?)?;
                // The first message waits until the conversation has begun.
                group.send(b"x").await?;
                let big = vec![0; 70_000];
                let error = group.send(&big).await.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(90), "EMSGSIZE, not {error}");
                let mut left = 2;
                while left > 0 {
                    left -= u32::from(matches!(group.recv().await?, Event::Message { .. }));
                }
                group.leave().await?;
                Ok(())
            })?;
        }
        world.run(LIMIT)
    });
}

/// Graphs of two hosts on Ethernet in datagrams of the loopback device, with `layers` above UDP.
fn two_graphs(layers: &str) -> [String; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let ports = sockets.map(|socket| socket.local_addr().unwrap().port());
    [0, 1].map(|at| {
        let (here, there, host) = (ports[at], ports[1 - at], at + 1);
        format!(
            r#"host h{host} {{
                host-eth local="127.0.0.1:{here}" peer="127.0.0.1:{there}"
                eth host-eth
                arp eth
                ip arp {{ address "10.0.0.{host}/24"; }}
                icmp ip
                udp ip
                {layers}
            }}"#
        )
    })
}

fn stack(graph: &str) -> Stack<Thread> {
    Setup::from_text(graph, xk_catalog::PROTOCOLS).thread().unwrap()
}

fn pair(layers: &str) -> [Stack<Thread>; 2] {
    two_graphs(layers).map(|graph| stack(&graph))
}

const REAL: [&str; 2] = ["10.0.0.1:4000", "10.0.0.2:4000"];

#[test]
fn blocking_programs_on_real_wires_hear_one_order() {
    let stacks = pair("psync udp; order psync");
    let threads = [0, 1].map(|me| {
        let stack = stacks[me].clone();
        std::thread::spawn(move || {
            let options = Options::total(me, &REAL).unwrap();
            let mut group = blocking::Group::join(&stack, options).unwrap();
            let mut heard = Vec::new();
            for number in 0..20u8 {
                group.send(&[number]).unwrap();
            }
            while heard.len() < 40 {
                if let Event::Message { from, octets, .. } = group.recv().unwrap() {
                    heard.push((from, octets));
                }
            }
            group.leave().unwrap();
            heard
        })
    });
    let [one, other] = threads.map(|thread| thread.join().unwrap());
    assert_eq!(one, other);
}

/// A record comes while the program looks for one.
#[test]
fn records_come_whole_to_programs_that_do_not_wait() {
    const MESSAGES: usize = 2000;
    let stacks = pair("psync udp");
    let members = REAL.map(|at| at.parse().unwrap());
    let join =
        |me: usize| Conversation::join(&stacks[me], &members, me, Joining::default()).unwrap();
    let (hears, sends) = (join(1), join(0));
    let sending = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            sends.send(&[number as u8; 100]).unwrap();
        }
        sends
    });
    hears.set_nonblocking(true).unwrap();
    let mut heard = 0;
    while heard < MESSAGES {
        match hears.recv() {
            Ok(Some(xk_net::Heard::Message { octets, .. })) => {
                assert_eq!(octets, [heard as u8; 100]);
                heard += 1;
            }
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    drop(sending.join().unwrap());
}

/// A program whose stack ends without a word comes back into its group with the next one.
#[test]
fn a_blocking_program_comes_back() {
    fn hear(group: &mut blocking::Group<Thread>, text: &[u8]) {
        loop {
            if let Event::Message { octets, .. } = group.recv().unwrap()
                && octets == text
            {
                return;
            }
        }
    }
    let join = |stack: &Stack<Thread>, options| blocking::Group::join(stack, options).unwrap();
    let options = |me| Options::partial(me, &REAL).unwrap();
    let graphs = two_graphs("psync udp");
    let stays = stack(&graphs[0]);
    let other = std::thread::spawn(move || {
        let mut group = join(&stays, options(0));
        hear(&mut group, b"first");
        group.send(b"heard").unwrap();
        hear(&mut group, b"back");
        group.send(b"welcome").unwrap();
        group.leave().unwrap();
    });
    let ends = stack(&graphs[1]);
    let mut group = join(&ends, options(1));
    group.send(b"first").unwrap();
    hear(&mut group, b"heard");
    drop((group, ends));
    // The thread of the one before still has the port for a moment.
    let next = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Setup::from_text(&graphs[1], xk_catalog::PROTOCOLS).thread().ok()
    });
    let next = next.expect("the port is free within five seconds");
    let mut group = join(&next, options(1).returning());
    group.send(b"back").unwrap();
    hear(&mut group, b"welcome");
    group.leave().unwrap();
    other.join().unwrap();
}

#[test]
fn a_graph_without_the_layer_is_told() {
    let [stack, _] = pair("");
    let error = blocking::Group::join(&stack, Options::total(0, &REAL).unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(93), "EPROTONOSUPPORT, not {error}");
}
