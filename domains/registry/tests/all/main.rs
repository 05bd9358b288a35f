//! Connections that a registry begins and programs carry on, in virtual time.

mod app;
mod datagrams;
mod deaths;
mod hostile;
mod moves;
mod order;
mod world;
