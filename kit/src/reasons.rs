//! Reasons for dropping and refusing messages that several protocols share, as a table: what an
//! address space looks a reason up in that came from another one.

use crate::answers::{LOOP, RATE_LIMITED, SERVICE_PORT, TO_MANY, UNPROVED};
use crate::layer::NOT_A_MEMBER;
use crate::net::moving::MOVED;
use crate::net::neighbour::UNKNOWN_STATION;
use crate::net::ports::{ATTRIBUTES_FULL, NO_PEER, NO_REPLY, UNREACHABLE};
use crate::net::virtual_layer::NO_WAY;
use crate::rpc::call::{
    BAD_ARGUMENTS, BAD_CREDENTIALS, BUSY, NO_PROCEDURE, NO_PROGRAM, NO_VERSION, SYSTEM_ERROR,
};
use crate::rpc::incarnation::CHALLENGED;
use crate::rpc::onc::{
    BAD_VERIFIER, REJECTED_CREDENTIALS, REJECTED_VERIFIER, TOO_WEAK, WRONG_RPC_VERSION,
};
use crate::wire::device::{DEVICE_DOWN, DEVICE_ERROR, DEVICE_FULL, DEVICE_LOSS};
use xk_core::Reason;

/// Every reason of this crate. Those of one protocol alone are in its entry
/// ([`reasons`](xk_core::Entry::reasons)).
pub static SHARED: &[&Reason] = &[
    &LOOP,
    &RATE_LIMITED,
    &SERVICE_PORT,
    &TO_MANY,
    &UNPROVED,
    &UNKNOWN_STATION,
    &ATTRIBUTES_FULL,
    &MOVED,
    &NO_PEER,
    &NO_REPLY,
    &UNREACHABLE,
    &NO_WAY,
    &NOT_A_MEMBER,
    &BAD_ARGUMENTS,
    &BAD_CREDENTIALS,
    &BUSY,
    &NO_PROCEDURE,
    &NO_PROGRAM,
    &NO_VERSION,
    &SYSTEM_ERROR,
    &CHALLENGED,
    &BAD_VERIFIER,
    &REJECTED_CREDENTIALS,
    &REJECTED_VERIFIER,
    &TOO_WEAK,
    &WRONG_RPC_VERSION,
    &DEVICE_DOWN,
    &DEVICE_ERROR,
    &DEVICE_FULL,
    &DEVICE_LOSS,
];
