//! What the network will bear: congestion control behind one small trait.
