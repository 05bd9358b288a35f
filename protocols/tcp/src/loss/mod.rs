//! What was lost: round trip times, outstanding segments, and when to send again.
