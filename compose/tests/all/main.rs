//! All tests of this crate that need no process of their own: one program, linked once.

mod checks;
mod common;
mod compositions;
mod cuts;
mod deaths;

mod filters;
mod frames;
mod graphs;
mod layers;
mod manuals;
mod mrpc;
mod mutations;
mod mutual;
mod order;
mod parts;
mod refusals;
mod rpc_sun;
mod starts;
mod streams;
mod vip;
mod vipsize;
mod virtual_crowd;
mod virtual_moves;
mod virtual_world;
mod virtuals;
mod waiting;
mod waits;
