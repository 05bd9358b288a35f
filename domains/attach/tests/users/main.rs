//! Programs of several users at one door, in one thread: what each may send and ask, what each may
//! have of what all share, and what is left of those that have gone.

mod apple;
mod attributes;
mod charged;
mod rig;
mod shares;
