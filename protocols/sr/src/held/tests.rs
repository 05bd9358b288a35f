use super::*;
use std::vec::Vec;
use xk_core::random::Random;

fn invoked(origin: u16, operation: u32, token: u32) -> Invoked {
    let (manner, process, hops, order) = (Manner::Call, 0, 0, 0);
    Invoked { manner, origin, process, hops, operation, token, order }
}

fn queue<T>(queued: usize) -> Held<T> {
    Held::new(0, Most { queued, of_machine: 400, results: 400 })
}

/// The number of the invocation that is chosen, if `by` ranks the work and `may` permits it.
fn choose(held: &Held<i64>, may: impl Fn(i64) -> bool, by: impl Fn(i64) -> i64) -> Option<u32> {
    let (mut choice, mut last) = (Choice::default(), 0);
    while let Some((number, _, work)) = held.after(last) {
        choice.hear(number, may(*work), by(*work));
        last = number;
    }
    choice.chosen()
}

#[test]
fn by_chooses_the_smallest_or_the_largest_and_of_equal_ones_the_oldest() {
    let mut held = queue(16);
    for work in [3, 9, 1, 9, 1] {
        held.add(invoked(1, 7, work as u32), work).unwrap();
    }
    assert_eq!(choose(&held, |_| true, |work| work), Some(3));
    assert_eq!(choose(&held, |_| true, |work| -work), Some(2));
    assert_eq!(choose(&held, |_| true, |_| 0), Some(1));
    assert_eq!(choose(&held, |work| work < 3, |work| -work), Some(3));
    assert_eq!(choose(&held, |_| false, |work| work), None);
}

#[test]
fn an_invocation_is_answered_once() {
    let mut held = queue(1);
    let call = invoked(2, 7, 0x77);
    let number = held.add(call, 0).unwrap();
    assert_eq!(held.add(call, 5), Err(5), "the queue is full");
    assert_eq!(held.answer(number), None, "it is not executed yet");
    assert_eq!(held.take(number), Some((Manner::Call, 0)));
    assert_eq!(held.take(number), None);
    assert_eq!(held.answer(number), Some(call));
    assert_eq!(held.answer(number), None);
    held.restore(number);
    assert_eq!(held.answer(number), Some(call));
    assert_eq!(held.find(2, 0x77), Whereabouts::Here, "its result is on the way");
    held.forward(&call, 9);
    assert_eq!(held.find(2, 0x77), Whereabouts::Forwarded(9));
    // It comes back.
    let again = held.add(call, 1).unwrap();
    assert_eq!(held.find(2, 0x77), Whereabouts::Here);
    held.remove(number);
    held.take(again);
    held.remove(again);
    assert_eq!(held.find(2, 0x77), Whereabouts::Forwarded(9));
    assert_eq!(held.find(2, 0x78), Whereabouts::Unknown);
    for token in 0..2 * FORWARDED_MAX as u32 {
        held.forward(&invoked(1, 7, token), 9);
    }
    assert_eq!(held.find(2, 0x77), Whereabouts::Unknown, "the oldest are forgotten");
    assert_eq!(held.forwarded.len(), FORWARDED_MAX);
}

/// Random acts against a list.
#[test]
fn what_is_held_is_what_a_list_of_it_has() {
    const QUEUED_MAX: usize = 12;
    xk_testkit::seeds::of(1).run(|seed| {
        let (random, mut held) = (Random::new(seed), queue(QUEUED_MAX));
        let mut queued: Vec<(u32, Invoked, i64)> = Vec::new();
        let mut running: Vec<(u32, Invoked, bool)> = Vec::new();
        for token in 0..400 {
            match random.below(6) {
                0 | 1 => {
                    let (work, operation) = (random.below(5) as i64, random.below(3) as u32);
                    let call = invoked(1, operation, token);
                    match held.add(call, work) {
                        Ok(number) => queued.push((number, call, work)),
                        Err(_) => assert_eq!(queued.len(), QUEUED_MAX, "seed {seed}"),
                    }
                }
                2 => {
                    let rank = |work: i64| if seed % 2 == 0 { work } else { -work };
                    let chosen = choose(&held, |work| work != 2, rank);
                    let best = queued.iter().filter(|(_, _, work)| *work != 2);
                    let best = best.min_by_key(|(_, _, work)| rank(*work)).map(|(n, ..)| *n);
                    assert_eq!(chosen, best, "seed {seed}");
                    let Some(number) = chosen else { continue };
                    let at = queued.iter().position(|(n, ..)| *n == number).unwrap();
                    let (_, call, work) = queued.remove(at);
                    assert_eq!(held.take(number), Some((Manner::Call, work)), "seed {seed}");
                    running.push((number, call, false));
                }
                3 if !running.is_empty() => {
                    let at = random.below(running.len() as u64) as usize;
                    let (number, call, is_answered) = &mut running[at];
                    let answered = held.answer(*number);
                    assert_eq!(answered, (!*is_answered).then_some(*call), "seed {seed}");
                    *is_answered = true;
                }
                4 if !running.is_empty() => {
                    let at = random.below(running.len() as u64) as usize;
                    let (number, call, _) = running.swap_remove(at);
                    held.remove(number);
                    assert_eq!(held.find(1, call.token), Whereabouts::Unknown, "seed {seed}");
                }
                5 if random.below(10) == 0 => {
                    let gone = held.destroy(|operation| operation == 2);
                    let wanted: Vec<_> =
                        queued.extract_if(.., |(_, call, _)| call.operation == 2).collect();
                    let wanted: Vec<_> = wanted.into_iter().map(|(_, c, work)| (c, work)).collect();
                    assert_eq!(gone, wanted, "seed {seed}");
                }
                _ => {}
            }
            assert_eq!(held.len(), (queued.len(), queued.len() + running.len()), "seed {seed}");
            assert_eq!(held.is_empty(), queued.is_empty());
        }
    });
}

#[test]
fn a_machine_has_a_share_of_the_queue_and_of_the_results() {
    let mut held = Held::new(0, Most { queued: 8, of_machine: 3, results: 2 });
    let add = |held: &mut Held<i64>, origin| held.add(invoked(origin, 7, 1), 0);
    let of: Vec<u32> = (0..3).map(|_| add(&mut held, 1).unwrap()).collect();
    assert!(add(&mut held, 1).is_err(), "it has its share");
    let forwarded = Invoked { hops: 1, order: 1, ..invoked(9, 7, 2) };
    assert!(held.add(forwarded, 0).is_err(), "that which it forwards is of its share");
    let other = add(&mut held, 2).unwrap();
    for number in &of[..2] {
        held.take(*number).unwrap();
        assert!(held.reply(*number).is_some());
        held.remove(*number);
    }
    assert_eq!(held.after(0).map(|(number, ..)| number), Some(other), "its results are not taken");
    assert!(add(&mut held, 1).is_ok());
    held.sent(&invoked(1, 7, 1));
    assert_eq!(held.after(0).map(|(number, ..)| number), Some(of[2]));
    for _ in 0..8 {
        let _ = add(&mut held, 0);
    }
    assert_eq!(held.len().0, 8, "a machine's own have no share");
    assert_eq!(held.destroy(|_| true).len(), 8);
    assert!(add(&mut held, 1).is_ok());
}
