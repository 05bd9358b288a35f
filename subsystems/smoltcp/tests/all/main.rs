//! smoltcp and xk as each other's lower layer, in virtual time and in the host's.

mod above;
mod below;
mod program;
mod real;
