//! Behaviours of streams, grouped as the lists of the stream head's manuals have them: opening and
//! closing, ioctls with their errors, reading, writing, `getmsg`, `putmsg`, `poll`, bands,
//! flushing, multiplexors.

mod anything;
mod behaviours;
mod calls;
mod ioctls;
mod modules;
mod multiplexors;
mod pipes;
mod reading;
mod rig;
mod tic;
mod transparent;
mod writing;
