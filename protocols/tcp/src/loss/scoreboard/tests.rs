//! Tests of the scoreboard.
