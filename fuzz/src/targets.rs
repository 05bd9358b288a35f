//! The targets of one protocol or part each.

pub(crate) mod apple;
pub(crate) mod arp;
pub(crate) mod atp;
pub(crate) mod authsys;
pub(crate) mod bsd;
pub(crate) mod channel;
pub(crate) mod cut;
pub(crate) mod eth;
pub(crate) mod fragment;
pub(crate) mod graph;
pub(crate) mod icmp;
pub(crate) mod ip;
pub(crate) mod mrpc;
pub(crate) mod netio;
pub(crate) mod null;
pub(crate) mod portmap;
pub(crate) mod question;
pub(crate) mod reqrep;
pub(crate) mod rm;
pub(crate) mod rpcgen;
pub(crate) mod select;
pub(crate) mod shm;
pub(crate) mod tcp;
pub(crate) mod tpi;
pub(crate) mod udp;
pub(crate) mod vipadv;
