//! Tests of the scoreboard against a model that keeps each segment's state in plain sight.

use super::*;
use crate::loss::rate::Stamp;
use proptest::prelude::*;
use std::vec::Vec;

/// Shortly before numbers go round.
const START: Seq = Seq(u32::MAX - 5_000);

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Resend,
    /// Acknowledges this part of what is outstanding, of a thousand.
    Acknowledge(u32),
    /// Sacks between these parts.
    Sack(u32, u32),
    /// Acknowledgements at the edges of segments.
    SackSegments(usize, usize),
    LoseOlder(u64),
    LoseFirst,
    FindLost,
    Renege,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u32..1500).prop_map(Step::Send),
        4 => Just(Step::Resend),
        2 => (0_u32..=1000).prop_map(Step::Acknowledge),
        1 => (0_u32..=1000, 0_u32..=1000).prop_map(|(a, b)| Step::Sack(a, b)),
        4 => (0_usize..40, 1_usize..20).prop_map(|(a, b)| Step::SackSegments(a, b)),
        3 => (0_u64..50).prop_map(Step::LoseOlder),
        1 => Just(Step::LoseFirst),
        1 => Just(Step::FindLost),
        1 => Just(Step::Renege),
    ];
    proptest::collection::vec(step, 1..150)
}

#[derive(Clone, Copy, Debug)]
struct Known {
    start: Seq,
    end: Seq,
    sent: Time,
    state: SegmentState,
}

#[derive(Debug)]
struct Model {
    segments: Vec<Known>,
    una: Seq,
    nxt: Seq,
    delivered: u64,
}

impl Model {
    fn octets(&self, state: SegmentState) -> u32 {
        self.segments.iter().filter(|s| s.state == state).map(|s| s.end.since(s.start)).sum()
    }

    fn acknowledge(&mut self, ack: Seq) {
        self.una = ack;
        for segment in &mut self.segments {
            if segment.start.before(ack) {
                let upto = segment.end.min(ack);
                if segment.state != SegmentState::Sacked {
                    self.delivered += u64::from(upto.since(segment.start));
                }
                segment.start = upto;
            }
        }
        self.segments.retain(|s| s.start != s.end);
    }

    fn sack(&mut self, block: SackBlock) {
        for segment in &mut self.segments {
            let lies_in =
                segment.start.at_or_after(block.start) && segment.end.at_or_before(block.end);
            if lies_in && segment.state != SegmentState::Sacked {
                segment.state = SegmentState::Sacked;
                self.delivered += u64::from(segment.end.since(segment.start));
            }
        }
    }

    fn part(&self, thousandths: u32) -> Seq {
        self.una + self.nxt.since(self.una) * thousandths / 1000
    }
}

fn sack(model: &mut Model, board: &mut Scoreboard, newly: &mut Newly, block: SackBlock) {
    let is_good = block.start.before(block.end);
    assert_eq!(board.sack(block, newly), is_good);
    if is_good {
        model.sack(block);
    }
}

fn apply(step: Step, model: &mut Model, board: &mut Scoreboard, newly: &mut Newly, now: Time) {
    match step {
        Step::Send(octets) => {
            let (start, end) = (model.nxt, model.nxt + octets);
            assert_eq!(board.sent(octets, now, Stamp::default()), model.segments.len() < 40);
            if model.segments.len() < 40 {
                model.segments.push(Known { start, end, sent: now, state: SegmentState::InFlight });
                model.nxt = end;
            }
        }
        Step::Resend => {
            let Some((start, octets)) = board.next_lost() else {
                assert_eq!(model.octets(SegmentState::Lost), 0);
                return;
            };
            let known = model.segments.iter_mut().find(|s| s.start == start).unwrap();
            assert_eq!((known.state, known.end), (SegmentState::Lost, start + octets));
            (known.state, known.sent) = (SegmentState::InFlight, now);
            assert_eq!(board.resent(start, now, Stamp::default()), Some(octets));
        }
        Step::Acknowledge(part) => {
            let ack = model.part(part);
            board.acknowledge(ack, newly);
            model.acknowledge(ack);
        }
        Step::Sack(from, to) => {
            let block = SackBlock { start: model.part(from), end: model.part(to) };
            sack(model, board, newly, block);
        }
        Step::SackSegments(from, count) => {
            let Some(first) = model.segments.get(from).copied() else {
                return;
            };
            let last = (from + count).min(model.segments.len()) - 1;
            let block = SackBlock { start: first.start, end: model.segments[last].end };
            sack(model, board, newly, block);
        }
        Step::LoseOlder(ms) => {
            let before = now.before(core::time::Duration::from_millis(ms));
            board.lose_while(|sending| sending.at < before);
            for segment in &mut model.segments {
                if segment.state == SegmentState::InFlight && segment.sent < before {
                    segment.state = SegmentState::Lost;
                }
            }
        }
        Step::LoseFirst => {
            board.lose_first();
            if let Some(first) = model.segments.first_mut()
                && first.state == SegmentState::InFlight
            {
                first.state = SegmentState::Lost;
            }
        }
        Step::FindLost => {
            board.find_lost();
            for segment in &mut model.segments {
                if segment.state == SegmentState::Lost {
                    segment.state = SegmentState::InFlight;
                }
            }
        }
        Step::Renege => {
            board.renege();
            for segment in &mut model.segments {
                if segment.state == SegmentState::Sacked {
                    model.delivered -= u64::from(segment.end.since(segment.start));
                    newly.delivered_octets -= segment.end.since(segment.start);
                    segment.state = SegmentState::Lost;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn it_agrees_with_the_model(steps in steps()) {
        let mut board = Scoreboard::new(START, 40);
        let mut model = Model { segments: Vec::new(), una: START, nxt: START, delivered: 0 };
        let mut newly = Newly { fack: START, ..Newly::default() };
        let mut now = Time::from_ms(100);
        for step in steps {
            now += core::time::Duration::from_millis(1);
            apply(step, &mut model, &mut board, &mut newly, now);
            board.check();
            prop_assert_eq!((board.una(), board.nxt()), (model.una, model.nxt));
            prop_assert_eq!(board.in_flight_octets(), model.octets(SegmentState::InFlight));
            prop_assert_eq!(board.lost_octets(), model.octets(SegmentState::Lost));
            prop_assert_eq!(board.sacked_octets(), model.octets(SegmentState::Sacked));
            prop_assert_eq!(board.segments() as usize, model.segments.len());
            prop_assert_eq!(u64::from(newly.delivered_octets), model.delivered);
            let first_is_sacked = model.segments.first().is_some_and(|s| s.state == SegmentState::Sacked);
            prop_assert_eq!(board.has_reneged(), first_is_sacked);
        }
    }
}

fn filled(segments: u32) -> (Scoreboard, Newly) {
    let mut board = Scoreboard::new(START, segments);
    for _ in 0..segments {
        assert!(board.sent(100, Time::from_ms(1), Stamp::default()));
    }
    assert!(!board.sent(100, Time::from_ms(1), Stamp::default()), "it is full");
    (board, Newly { now: Time::from_ms(2), fack: START, ..Newly::default() })
}

fn block(from: u32, to: u32) -> SackBlock {
    SackBlock { start: START + from * 100, end: START + to * 100 }
}

/// Whatever blocks a peer sends again and again, the work is for what is new in them.
#[test]
fn work_is_bounded_whatever_the_blocks() {
    let segments = 4_000;
    type Blocks = fn(u32, u32) -> SackBlock;
    let patterns: [Blocks; 5] = [
        |n, _| block(1, n + 2),
        |n, all| block(all - 1 - n, all),
        |n, all| block(1 + n, all),
        |n, all| {
            if n % 2 == 0 { block(1, all) } else { block(1 + n * 7 % (all - 1), all) }
        },
        |n, all| {
            // First every second one, then all together.
            if n < all / 2 { block(2 * n + 1, 2 * n + 2) } else { block(1 + n % 50, all) }
        },
    ];
    for (number, pattern) in patterns.iter().enumerate() {
        let (mut board, mut newly) = filled(segments);
        for n in 0..segments - 1 {
            board.sack(pattern(n, segments), &mut newly);
        }
        board.check();
        assert!(board.steps < u64::from(segments) * 14, "pattern {number}: {}", board.steps);
    }
}

#[test]
fn blocks_outside_are_refused() {
    let (mut board, mut newly) = filled(10);
    for bad in [block(5, 5), block(6, 5), block(5, 11), block(11, 12)] {
        assert!(!board.sack(bad, &mut newly), "{bad:?}");
    }
    let below = SackBlock { start: START - 100, end: START + 100 };
    assert!(!board.sack(below, &mut newly));
    assert_eq!((board.sacked_octets(), newly.delivered_octets), (0, 0));
}

#[test]
fn part_of_a_segment_is_not_sacked() {
    let (mut board, mut newly) = filled(10);
    let block = SackBlock { start: START + 150, end: START + 450 };
    assert!(board.sack(block, &mut newly));
    assert_eq!(board.sacked_octets(), 200);
}

#[test]
fn lost_segments_go_in_order_after_a_timeout() {
    let (mut board, mut newly) = filled(6);
    board.sack(block(2, 3), &mut newly);
    board.lose_while(|_| true);
    board.order_lost();
    for n in [0, 1, 3, 4, 5] {
        assert_eq!(board.next_lost(), Some((START + n * 100, 100)));
        assert_eq!(board.resent(START + n * 100, Time::from_ms(9), Stamp::default()), Some(100));
    }
    assert_eq!(board.next_lost(), None);
    assert_eq!(board.resent(START + 200, Time::from_ms(9), Stamp::default()), None, "sacked");
    assert_eq!(board.resent(START + 50, Time::from_ms(9), Stamp::default()), None, "no start");
}
