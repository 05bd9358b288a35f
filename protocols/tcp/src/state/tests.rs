use super::*;
use std::string::ToString;

#[test]
fn the_table_draws_the_diagram_of_the_standard() {
    assert_eq!(diagram(), include_str!("diagram.txt"));
    assert_eq!(dot().lines().count(), TRANSITIONS.len() + 2);
}

#[test]
fn no_way_is_there_twice() {
    for (at, (from, cause, _)) in TRANSITIONS.iter().enumerate() {
        let others = TRANSITIONS.iter().skip(at + 1);
        assert_eq!(others.filter(|(f, c, _)| f == from && c == cause).count(), 0);
    }
}

#[test]
fn every_state_is_reached_and_left() {
    for (from, _, to) in TRANSITIONS {
        assert!(TRANSITIONS.iter().any(|(f, _, _)| f == to), "{to} is left");
        assert!(TRANSITIONS.iter().any(|(_, _, t)| t == from), "{from} is reached");
        assert_eq!(from.to_string(), from.name());
    }
    assert_eq!(next(State::Closed, Cause::Fin), None);
    assert_eq!(next(State::FinWait1, Cause::Fin), Some(State::Closing));
}
