//! The modules that anything can push: what passes them arrives once and in order, what they hold
//! is bounded by the marks, and what waits goes on when there is room, or blocks, again.

use crate::rig::Rig;
use proptest::prelude::*;
use std::rc::Rc;
use xk_streams::pack::{Form, pack};
use xk_streams::{AutopushError, Bounds, Errno, Kind, Priority, Q, WeakQ};

/// High-water marks of these modules.
const HIGH: usize = 65_536;
const MESSAGE_MAX: usize = 5000;

/// The form of a module's messages, if it packs.
fn form(module: &str) -> Option<Form> {
    match module {
        "squeeze" => Some(Form::Runs),
        "crunch" => Some(Form::Repeats),
        _ => None,
    }
}

/// As the driver sees octets that the user writes; the lowest module is the first.
fn packed(modules: &[&str], octets: &[u8]) -> Vec<u8> {
    let forms = modules.iter().rev().filter_map(|module| form(module));
    forms.fold(octets.to_vec(), |octets, form| pack(form, &octets))
}

/// A message of so many octets that says which one it is.
fn message(n: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (n + at / 7) as u8).collect()
}

/// The write queues from the head's to the driver's.
fn queues(rig: &Rig) -> Vec<Q> {
    core::iter::successors(Some(rig.stream.head_q().write_side()), Q::next).collect()
}

fn from_driver(rig: &Rig) -> Q {
    rig.seen.up.borrow().as_ref().and_then(WeakQ::upgrade).unwrap()
}

/// The driver takes what it has got again.
fn go_on(rig: &Rig) {
    rig.seen.is_stopped.set(false);
    from_driver(rig).write_side().qenable(&rig.cx);
    rig.cx.run_due();
}

#[test]
fn packers_pack_down_and_unpack_up() {
    for module in ["squeeze", "crunch"] {
        let rig = Rig::new();
        rig.stream.push(&rig.cx, module).unwrap();
        let text = b"in the in the in the aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".as_slice();
        rig.stream.write(&rig.cx, text).unwrap();
        let short = packed(&[module], text);
        assert!(short.len() < text.len(), "{module}: {}", short.len());
        assert_eq!(rig.got(), [(Kind::Data, short.clone())], "{module}");
        rig.up(Kind::Data, &short);
        assert_eq!(rig.read(100).as_deref(), Ok(text), "{module}");
        // Of another form, cut off: counted as lost, and nothing comes.
        let lost = rig.streams.counts().lost;
        rig.up(Kind::Data, &[9, 1, 2]);
        rig.up(Kind::Data, &short[..short.len() - 1]);
        assert_eq!((rig.read(100), rig.streams.counts().lost - lost), (Err(Errno::EAGAIN), 2));
    }
}

#[test]
fn a_packer_waits_for_blocks() {
    let rig = Rig::new();
    rig.stream.push(&rig.cx, "crunch").unwrap();
    let blocks = rig.streams.blocks().clone();
    let mp = blocks.copy(Kind::Data, 0, &message(1, 3000)).unwrap();
    let top = rig.stream.head_q().write_side();
    // All other blocks are taken.
    let mut taken: Vec<_> = core::iter::from_fn(|| blocks.allocb(1024, Priority::High)).collect();
    top.putnext(&rig.cx, mp);
    assert_eq!((rig.got(), rig.streams.counts().bufcalls), (vec![], 1));
    assert_eq!(top.next().unwrap().qsize(), 1);
    taken.clear();
    rig.cx.advance(core::time::Duration::from_secs(1));
    assert_eq!(rig.got(), [(Kind::Data, packed(&["crunch"], &message(1, 3000)))]);
}

#[test]
fn a_full_queue_stops_its_writer_and_tells_it_of_room_once() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    stream.push(cx, "queue").unwrap();
    rig.seen.is_stopped.set(true);
    let mut sent = 0;
    while stream.write(cx, &message(sent, 1000)).is_ok() {
        sent += 1;
        cx.run_due();
    }
    let [_, module, driver] = queues(&rig).try_into().unwrap();
    assert!((HIGH..HIGH + 1000).contains(&module.count()), "{module:?}");
    assert!((1024..2024).contains(&driver.count()), "{driver:?}");
    for q in [&module, &driver] {
        let figures = q.figures();
        assert_eq!((figures.blocked, figures.back_enables), (1, 0), "{q:?}");
    }
    go_on(&rig);
    assert_eq!(rig.got().len(), sent);
    // The driver's is full again and again while the module's runs empty.
    assert_eq!((module.figures().blocked, module.figures().back_enables), (1, 1));
    let counts = rig.streams.counts();
    assert_eq!(counts.blocked, counts.back_enables);
    assert!(module.figures().services > 1 && driver.figures().back_enables > 1);
}

#[test]
fn modules_are_pushed_on_what_is_opened() {
    let rig = Rig::new();
    let set = |text: &str| rig.streams.set_autopush(text);
    assert_eq!(set("dev nothing"), Err(AutopushError::NoModule("nothing".into())));
    assert_eq!(set("dev queue, dev"), Err(AutopushError::Twice("dev".into())));
    assert_eq!(
        set(&format!("dev {}", "queue ".repeat(10))),
        Err(AutopushError::TooMany("dev".into()))
    );
    assert_eq!(set("dev squeeze queue"), Ok(()));
    let stream = rig.streams.open(&rig.cx, "dev").unwrap();
    let names: Vec<_> = core::iter::successors(stream.head_q().write_side().next(), Q::next)
        .map(|q| q.module().info().name)
        .collect();
    assert_eq!(names, ["queue", "squeeze", "dev"]);
    assert_eq!(set("dev bad"), Ok(()));
    let open = rig.streams.opens();
    assert_eq!(rig.streams.open(&rig.cx, "dev").err(), Some(Errno::EPERM));
    assert_eq!((rig.streams.opens().1, Bounds::default().push_max), (open.1, 9));
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Up(usize),
    Read(usize),
    Run,
    Stop,
    GoOn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = 1..MESSAGE_MAX;
    let step = prop_oneof![
        8 => size.clone().prop_map(Step::Write),
        4 => size.clone().prop_map(Step::Up),
        2 => size.prop_map(Step::Read),
        6 => Just(Step::Run),
        2 => Just(Step::Stop),
        1 => Just(Step::GoOn),
    ];
    prop::collection::vec(step, 0..300)
}

/// Octets that were written, have come up, and have arrived.
#[derive(Default)]
struct Model {
    written: Vec<Vec<u8>>,
    risen: Vec<u8>,
    got: Vec<Vec<u8>>,
    read: Vec<u8>,
}

impl Model {
    fn step(&mut self, rig: &Rig, modules: &[&str], step: &Step) {
        let (cx, n) = (&rig.cx, self.written.len());
        match *step {
            Step::Write(size) => {
                let octets = message(n, size);
                match rig.stream.write(cx, &octets) {
                    Ok(all) => {
                        assert_eq!(all, size);
                        self.written.push(octets);
                    }
                    Err(error) => assert_eq!(error, Errno::EAGAIN),
                }
            }
            Step::Up(size) => {
                let octets = message(self.risen.len(), size);
                if from_driver(rig).canputnext() {
                    rig.up(Kind::Data, &packed(modules, &octets));
                    self.risen.extend(octets);
                }
            }
            Step::Read(max) => self.read.extend(rig.read(max).unwrap_or_default()),
            Step::Run => drop(cx.run_due()),
            Step::Stop => rig.seen.is_stopped.set(true),
            Step::GoOn => go_on(rig),
        }
        self.got.extend(rig.seen.got.borrow_mut().drain(..).map(|mp| mp.to_vec()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_or_overtaken_and_all_is_bounded(
        modules in prop::collection::vec(prop::sample::select(vec!["queue", "squeeze", "crunch", "count"]), 0..4),
        steps in steps(),
    ) {
        let rig = Rig::new();
        for module in &modules {
            rig.stream.push(&rig.cx, module).unwrap();
        }
        let mut model = Model::default();
        for step in &steps {
            model.step(&rig, &modules, step);
            for q in queues(&rig).iter().flat_map(|q| [q.clone(), q.other()]) {
                let high = q.marks().0 as usize;
                // A packed message is longer by an octet for each module.
                prop_assert!(q.count() < high + MESSAGE_MAX + modules.len(), "{:?}", q);
            }
        }
        model.step(&rig, &modules, &Step::GoOn);
        let expected: Vec<_> =
            model.written.iter().map(|octets| packed(&modules, octets)).collect();
        prop_assert!(model.got == expected, "{} of {}", model.got.len(), expected.len());
        while let Ok(octets) = rig.read(MESSAGE_MAX) {
            model.read.extend(octets);
            rig.cx.run_due();
        }
        prop_assert!(model.read == model.risen, "{} of {}", model.read.len(), model.risen.len());
        let counts = rig.streams.counts();
        prop_assert_eq!((counts.blocked, counts.lost), (counts.back_enables, 0));
        rig.stream.close(&rig.cx);
        let streams = Rc::clone(&rig.streams);
        prop_assert_eq!(streams.blocks().stats().messages, 0);
    }
}
