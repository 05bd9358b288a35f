//! Shared parts of layers of calls: the skeleton of a layer, calls and their control questions,
//! pools of sessions and queues before them, credentials, kept requests, incarnations of peers, ONC
//! RPC.

pub mod auth;
pub mod between_hosts;
pub mod call;
pub mod call_layer;
pub mod callers;
pub mod codes;
pub mod incarnation;
pub mod invoke;
pub mod onc;
pub mod places;
pub mod records;
pub mod retransmit;
pub mod serve;
pub mod server;
pub mod session_pool;
pub mod wait_queue;
