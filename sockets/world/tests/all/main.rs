//! Programs in the simulator: each test runs its seeds twice, and both runs end alike.

mod echo;
mod faults;
mod http;
mod system;
mod tls;
