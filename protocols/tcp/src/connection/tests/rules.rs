//! Single rules of the standards.
