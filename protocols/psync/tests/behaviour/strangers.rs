//! Hosts that begin conversations which nothing comes of.

use super::{MS, Member, NUMBER, host};
use core::time::Duration;
use std::collections::BTreeSet;
use xk_core::control::ListSessions;
use xk_core::{HostAddr, SessionRef};
use xk_kit::group::{MyMember, SendNull};
use xk_kit::net::attribute::Peer;
use xk_psync::wire::{Address, Entry, Header, LISTED, Opening, VERSION, kind};

const WINDOW: u16 = 16;

fn address(at: u8) -> Address {
    let host = HostAddr::from([10, 0, 0, at + 1]);
    Address { process: NUMBER as u32, peer: Peer { host, port: 0 } }
}

/// Message `seq` of a host, in a conversation with member 1 and as many others as make it `n`.
fn message(from: usize, conversation: u32, n: u8, seq: u32) -> Vec<u8> {
    let others = (0..n - 2).map(|other| address(other + 100));
    let members = [address(from as u8), address(1)].into_iter().chain(others).collect();
    let before = Entry { sender: 0, incarnation: 1, seq: seq - 1 };
    let before: &[u8] = if seq > 1 { &before.emit() } else { &[] };
    let body = [7; 1000];
    let header = Header {
        version: VERSION,
        kind: kind::DATA,
        flags: LISTED,
        entries: u8::from(seq > 1),
        conversation,
        sender: 0,
        incarnation: 1,
        seq,
        length: body.len() as u32,
    };
    let opening = Opening { window: WINDOW, members };
    [&header.emit()[..], before, &opening.emit(), &body].concat()
}

/// A host sends all that it may, in each of so many conversations.
fn flood(to: &Member, from: usize, conversations: u32, n: u8) {
    for conversation in 1..=conversations {
        for seq in 1..=WINDOW.into() {
            to.arrive(from, &message(from, 1000 * from as u32 + conversation, n, seq));
        }
    }
}

fn sessions(of: &Member) -> Vec<SessionRef> {
    drop((of.top.take_received(), of.bottom.take_sent()));
    let listed = of.layer.ask(&of.cx, ListSessions::first(100)).unwrap();
    listed.here().cloned().collect()
}

/// The other members of such conversations exist in the list alone, so all that is said in one is
/// kept for them.
#[test]
fn a_host_that_begins_many_conversations_has_a_share() {
    let member = Member::new(1, &[]);
    flood(&member, 2, 1, 3);
    let (neighbour, kept) = (sessions(&member).remove(0), member.cx.live().0);
    assert!(kept >= WINDOW.into(), "{kept} are kept");
    flood(&member, 9, 60, 64);
    assert_eq!(member.drops("host has its share"), 59);
    assert_eq!(sessions(&member).len(), 2);
    assert_eq!(member.cx.live().0, 2 * kept, "what one conversation may hold");
    // One more host has room, and so have others, up to what all share.
    for from in 10..30 {
        flood(&member, from, 1, 64);
    }
    assert_eq!(member.drops("host has its share"), 59, "each has but one");
    assert!(sessions(&member).len() <= 4 && member.cx.live().0 <= 4 * kept);
    // Those that a protocol above holds are its own to bound.
    let held: Vec<SessionRef> = (30..40)
        .map(|from| {
            drop(member.top.take_opened());
            flood(&member, from, 1, 64);
            member.opened()
        })
        .collect();
    assert!(held.iter().all(|session| !session.head().is_closed()));
    drop(neighbour);
}

/// Programs that end say nothing, so a host's share fills with their conversations. New ones end
/// those that were silent longest, not each other.
#[test]
fn a_host_whose_conversations_are_over_begins_new_ones() {
    let member = Member::new(1, &[]);
    for conversation in 1..=40 {
        member.cx.advance(100 * MS);
        for seq in 1..=3 {
            member.arrive(2, &message(2, conversation, 2, seq));
        }
    }
    for seq in 1..=3 {
        for conversation in 101..=104 {
            member.arrive(2, &message(2, conversation, 2, seq));
        }
    }
    assert_eq!(member.drops("not this conversation"), 0);
    // Those of which all has come.
    let whole = || {
        let all = sessions(&member).into_iter().filter(|session| session.head().received() == 3);
        let number = |session: SessionRef| {
            session.ask(&member.cx, MyMember::default()).unwrap().conversation
        };
        all.map(number).collect::<BTreeSet<u32>>()
    };
    assert_eq!(whole(), (13..=40).chain(101..=104).collect());
    // Strangers that begin more in its name end a part of them, and otherwise their own.
    for conversation in 1001..=1100 {
        member.arrive(2, &message(2, conversation, 2, 1));
    }
    assert_eq!(whole(), (21..=40).chain(101..=104).collect());
}

/// A layer in between answers by a null. It goes to the one that was heard, holds nothing below,
/// and is not kept for good.
#[test]
fn what_answers_a_stranger_goes_to_no_other_and_is_given_up() {
    let member = Member::new(1, &[]);
    member.arrive(9, &message(9, 5, 64, 1));
    let session = sessions(&member).remove(0);
    let held = member.bottom.held().len();
    assert!(session.ask(&member.cx, SendNull).is_some());
    let sent = member.bottom.take_sent();
    assert!(sent.iter().all(|sent| sent.peer == Some(host(9))) && !sent.is_empty());
    drop(sent);
    assert_eq!(member.bottom.held().len(), held, "no way is opened");
    for _ in 0..29 {
        member.cx.advance(1000 * MS);
    }
    assert!(!session.head().is_closed());
    member.cx.advance(Duration::from_secs(5));
    assert!(session.head().is_closed() && sessions(&member).is_empty());
    let sent = member.bottom.take_sent();
    assert!(sent.len() < 40 && sent.iter().all(|sent| sent.peer == Some(host(9))), "{sent:?}");
    drop(sent);
    assert_eq!(member.cx.live(), (0, 0), "nothing is kept");
}
