//! A host whose packets the test carries: `icmp` on `ip` on a recording link.
#![allow(dead_code, reason = "each test file uses a part of it")]

use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Part, Participants, ProtocolRef, Reason, SessionRef};
use xk_icmp::IcmpFigures;
use xk_icmp::wire::{self, Header};
use xk_kit::net::checksum;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

pub(crate) struct Host {
    pub(crate) cx: Rc<TestKernel>,
    pub(crate) lower: Bottom,
    pub(crate) ip: ProtocolRef,
    pub(crate) icmp: ProtocolRef,
    /// On `icmp`.
    pub(crate) pinger: Top,
    /// On `ip`, protocol 17.
    pub(crate) top: Top,
}

pub(crate) fn block(name: &'static str, value: &str) -> Params {
    let mut block = Params::default();
    block.set(name, Value::Text(value.into()));
    block
}

impl Host {
    pub(crate) fn new(own: Ipv4Addr, ip_params: Params, icmp_params: Params) -> Self {
        let cx = Rc::new(TestKernel::new(u64::from(own.to_bits())));
        let lower = Bottom::add(&cx, "link", Lower::link(1500));
        let mut params = ip_params;
        params.add_block("address", block("address", &format!("{own}/24")));
        let mut route = block("network", "default");
        route.set("via", Value::Text("10.0.0.254".into()));
        params.add_block("route", route);
        let build = |kind: &'static str, below: &ProtocolRef, params: &Params| {
            let entry = xk_catalog::find(kind).expect("it is in the catalog");
            for number in entry.type_numbers() {
                cx.numbers_mut().add(number).expect("no conflict");
            }
            entry
                .add(&cx, kind, core::slice::from_ref(below), params)
                .expect("the parameters are right")
        };
        let ip = build("ip", lower.protocol(), &params);
        let icmp = build("icmp", &ip, &icmp_params);
        let pinger = Top::add(&cx, "pinger");
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), ip.id(), 17);
        cx.start().expect("it starts");
        let any = Participants::local(Part::Any);
        let _ = top.enable(&cx, &ip, any).expect("nobody else has it");
        Self { cx, lower, ip, icmp, pinger, top }
    }

    pub(crate) fn simple(own: Ipv4Addr) -> Self {
        Self::new(own, Params::default(), Params::default())
    }

    pub(crate) fn open(&self, peer: Ipv4Addr) -> SessionRef {
        let pair = Participants::pair(Part::Any, Part::host(peer));
        self.pinger.open(&self.cx, &self.icmp, pair).expect("it opens")
    }

    pub(crate) fn push(&self, session: &SessionRef, octets: &[u8]) {
        session.push(&self.cx, self.cx.message(octets)).expect("it goes");
    }

    pub(crate) fn inject(&self, octets: &[u8]) {
        self.lower.inject(&self.cx, None, self.cx.message(octets));
    }

    pub(crate) fn sent(&self) -> Vec<Vec<u8>> {
        let sent = self.lower.take_sent();
        sent.iter().map(|s| octets(&s.message)).collect()
    }

    pub(crate) fn figures(&self) -> IcmpFigures {
        self.icmp.ask(&self.cx, IcmpFigures::default()).expect("its own")
    }

    pub(crate) fn dropped(&self, reason: &Reason) -> u64 {
        self.icmp.head().drops().of(reason)
    }
}

/// Carries packets until both are silent.
pub(crate) fn exchange(a: &Host, b: &Host) {
    loop {
        let (to_b, to_a) = (a.sent(), b.sent());
        if to_b.is_empty() && to_a.is_empty() {
            return;
        }
        to_b.iter().for_each(|packet| b.inject(packet));
        to_a.iter().for_each(|packet| a.inject(packet));
    }
}

/// A packet, header checksum and all.
pub(crate) fn packet(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut octets = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, protocol, 0, 0];
    octets[2..4].copy_from_slice(&len.to_be_bytes());
    octets.extend_from_slice(&src.octets());
    octets.extend_from_slice(&dst.octets());
    mend(&mut octets);
    octets.extend_from_slice(payload);
    octets
}

pub(crate) fn mend(octets: &mut [u8]) {
    octets[10..12].fill(0);
    let sum = checksum::checksum(&octets[..20]);
    octets[10..12].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let message = wire::Message { header, body };
    [&message.header_octets()[..], body].concat()
}

/// Source, destination and what the only packet sent says.
pub(crate) fn told(host: &Host) -> (Ipv4Addr, Ipv4Addr, Vec<u8>) {
    let sent = host.sent();
    assert_eq!(sent.len(), 1, "one packet");
    let at = |n: usize| Ipv4Addr::new(sent[0][n], sent[0][n + 1], sent[0][n + 2], sent[0][n + 3]);
    assert_eq!(sent[0][9], 1);
    (at(12), at(16), sent[0][20..].to_vec())
}
