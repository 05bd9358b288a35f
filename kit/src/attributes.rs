//! The attributes that several protocols share, as a table: what a side of a cut looks an attribute
//! up in that came from the other one.

use crate::answers::AskerProved;
use crate::group::{Aside, Commutes, Node, ViewChange, Want};
use crate::net::attribute::{Arrived, DontFragment, Ecn, LinkCast, Peer, Sending};
use crate::rpc::call::{CallOptions, Caller, Gather, Transaction};
use crate::rpc::invoke::Invocation;
use crate::wire::offload::TransportChecksum;
use crate::wire::segments::Segments;
use xk_core::message::AttributeType;

/// Every attribute of this crate.
pub static SHARED: &[AttributeType] = &[
    AttributeType::of::<Arrived>(),
    AttributeType::of::<Aside>(),
    AttributeType::of::<AskerProved>(),
    AttributeType::of::<CallOptions>(),
    AttributeType::of::<Caller>(),
    AttributeType::of::<Commutes>(),
    AttributeType::of::<DontFragment>(),
    AttributeType::of::<Ecn>(),
    AttributeType::of::<Gather>(),
    AttributeType::of::<Invocation>(),
    AttributeType::of::<LinkCast>(),
    AttributeType::of::<Node>(),
    AttributeType::of::<Peer>(),
    AttributeType::of::<Segments>(),
    AttributeType::of::<Sending>(),
    AttributeType::of::<Transaction>(),
    AttributeType::of::<TransportChecksum>(),
    AttributeType::of::<ViewChange>(),
    AttributeType::of::<Want>(),
];

/// The type of an attribute with this key.
#[must_use]
pub fn find(key: u32) -> Option<&'static AttributeType> {
    SHARED.iter().find(|kind| kind.key == key)
}
