//! What several protocols need: checksum, addresses, shared control questions.
#![no_std]
