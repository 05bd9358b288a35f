//! The state against a model that remembers all requests, its bounds, and its snapshots.

use super::*;
use proptest::prelude::*;
use std::vec;

fn request<'a>(client: u64, number: u32, key: &'a [u8], act: Act<'a>) -> Request<'a> {
    Request { client, number, key, act }
}

fn status(store: &mut Store, client: u64, number: u32, act: Act<'_>) -> Status {
    store.execute(&request(client, number, b"k", act)).status
}

#[test]
fn each_operation_does_what_it_says() {
    let mut store = Store::default();
    let mut number = 0;
    let mut next = |act| {
        number += 1;
        store.execute(&request(1, number, b"k", act))
    };
    let found = |value: &[u8]| Reply { status: Status::Found, value: value.to_vec() };
    let swap = |from, to| Act::Swap { from, to };
    assert_eq!(next(Act::Get), Status::Missing.into());
    assert_eq!(next(swap(Some(b""), b"a")), Status::Differs.into(), "none is not empty");
    assert_eq!(next(swap(None, b"a")), Status::Done.into());
    assert_eq!(next(swap(None, b"b")), Status::Differs.into());
    assert_eq!(next(Act::Get), found(b"a"));
    assert_eq!(next(swap(Some(b"a"), b"b")), Status::Done.into());
    assert_eq!(next(Act::Put(b"")), Status::Done.into());
    assert_eq!(next(Act::Get), found(b""));
    assert_eq!(next(Act::Delete), Status::Done.into());
    assert_eq!(next(Act::Delete), Status::Done.into());
    assert_eq!(next(Act::Get), Status::Missing.into());
    assert_eq!((store.keys(), store.octets, store.clients()), (0, 0, 1));
}

#[test]
fn a_repeated_request_is_executed_once() {
    let mut store = Store::default();
    assert_eq!(status(&mut store, 1, 1, Act::Put(b"a")), Status::Unknown, "begins with a get");
    assert_eq!(status(&mut store, 1, 1, Act::Get), Status::Missing);
    let swap = Act::Swap { from: None, to: b"a" };
    assert_eq!(status(&mut store, 1, 2, swap), Status::Done);
    assert_eq!(status(&mut store, 1, 2, swap), Status::Done, "as the first time");
    assert_eq!(status(&mut store, 2, 1, Act::Get), Status::Found);
    assert_eq!(status(&mut store, 2, 2, Act::Delete), Status::Done);
    assert_eq!(status(&mut store, 1, 2, swap), Status::Done);
    assert_eq!(status(&mut store, 2, 3, Act::Get), Status::Missing, "not executed again");
    assert_eq!(status(&mut store, 1, 4, Act::Get), Status::Missing);
    assert_eq!(status(&mut store, 1, 3, Act::Put(b"late")), Status::Old);
    assert_eq!(status(&mut store, 1, 4, Act::Put(b"other")), Status::Old, "another of one number");
    assert_eq!(status(&mut store, 1, 4, Act::Get), Status::Missing);
}

#[test]
fn the_client_that_was_silent_longest_is_forgotten() {
    let mut store = Store::default();
    for client in 0..CLIENTS_MAX as u64 {
        assert_eq!(status(&mut store, client, 1, Act::Get), Status::Missing);
    }
    assert_eq!(status(&mut store, 0, 2, Act::Put(b"a")), Status::Done);
    assert_eq!(status(&mut store, 9999, 1, Act::Get), Status::Found);
    assert_eq!(store.clients(), CLIENTS_MAX);
    assert_eq!(status(&mut store, 1, 2, Act::Put(b"b")), Status::Unknown);
    assert_eq!(status(&mut store, 0, 2, Act::Put(b"a")), Status::Done);
    assert_eq!(status(&mut store, 2, 2, Act::Delete), Status::Done);
    assert_eq!(store.clients(), CLIENTS_MAX);
}

#[test]
fn keys_and_octets_are_bounded() {
    let mut store = Store::default();
    let mut number = 0;
    let mut put = |store: &mut Store, key: u32, value: &[u8]| {
        number += 1;
        if number == 1 {
            store.execute(&request(1, 1, b"k", Act::Get));
            number = 2;
        }
        store.execute(&request(1, number, &key.to_be_bytes(), Act::Put(value))).status
    };
    for key in 0..KEYS_MAX as u32 {
        assert_eq!(put(&mut store, key, b""), Status::Done);
    }
    assert_eq!(put(&mut store, 1 << 20, b""), Status::Full);
    let value = [1; VALUE_MAX];
    let mut key = 0;
    while put(&mut store, key, &value) == Status::Done {
        key += 1;
    }
    assert_eq!(key as usize, (OCTETS_MAX - 4 * KEYS_MAX) / VALUE_MAX);
    assert!(store.octets <= OCTETS_MAX && store.octets + VALUE_MAX > OCTETS_MAX);
    assert_eq!(put(&mut store, 0, b"smaller"), Status::Done);
    let snapshot = store.snapshot();
    assert!(snapshot.len() <= SNAPSHOT_MAX, "{}", snapshot.len());
    assert_eq!(Store::restore(&snapshot), Ok(store));
}

#[test]
fn nothing_begins_before_all_are_there() {
    let mut store = Store::default();
    assert!(!store.has_begun(0) && !store.has_begun(1));
    store.hello(2);
    store.hello(0);
    store.hello(0);
    store.hello(200);
    assert!(!store.has_begun(3));
    store.hello(1);
    assert!(store.has_begun(3) && !store.has_begun(4));
    (0..64).for_each(|member| store.hello(member));
    assert!(store.has_begun(64));
}

#[test]
fn a_snapshot_that_was_changed_is_none() {
    let mut store = Store::default();
    store.hello(1);
    for client in [7, 3] {
        store.execute(&request(client, 1, b"a", Act::Get));
        store.execute(&request(client, 2, &[client as u8], Act::Put(b"value")));
    }
    let good = store.snapshot();
    assert_eq!(Store::restore(&good), Ok(store.clone()));
    for end in 0..good.len() {
        assert_eq!(Store::restore(&good[..end]), Err(ParseError), "cut at {end}");
    }
    assert_eq!(Store::restore(&[&good[..], &[0]].concat()), Err(ParseError));
    for (at, octet) in [(0, 2), (FRONT_OCTETS + 7, 9), (FRONT_OCTETS + 12, 9), (17, 200)] {
        let mut other = good.clone();
        other[at] = octet;
        assert_eq!(Store::restore(&other), Err(ParseError), "{octet} at {at}");
    }
}

/// A request of few clients with few keys, which may be repeated.
fn any_request() -> impl Strategy<Value = (u64, bool, u8, u8, u8, u8)> {
    (1..4_u64, any::<bool>(), 0..3_u8, 0..5_u8, 0..3_u8, 0..3_u8)
}

/// Key and operation of a request, as [`any_request`] draws them.
type Drawn = (Vec<u8>, u8, u8, u8);

proptest! {
    /// Each request of a client has the effect of one execution in a map, at the first time; at
    /// any time the state is that of its snapshot.
    #[test]
    fn the_state_is_that_of_a_map(all in proptest::collection::vec(any_request(), 0..60)) {
        let mut store = Store::default();
        let mut model = BTreeMap::new();
        let mut last: BTreeMap<u64, (u32, Drawn, Reply)> = BTreeMap::new();
        for (client, is_repeated, key, act, from, to) in all {
            let known = last.get(&client).cloned();
            let (number, what) = match (&known, is_repeated) {
                (Some((number, what, _)), true) => (*number, what.clone()),
                (Some((number, ..)), _) => (number + 1, (vec![key], act, from, to)),
                // A client begins with a get.
                (None, _) => (1, (vec![key], 0, 0, 0)),
            };
            let is_again = known.as_ref().is_some_and(|known| known.0 == number);
            let (key, act, from, to) = what.clone();
            let (from, to) = ([from], [to]);
            let act = match act {
                0 => Act::Get,
                1 => Act::Put(&to),
                2 => Act::Swap { from: None, to: &to },
                3 => Act::Swap { from: Some(&from), to: &to },
                _ => Act::Delete,
            };
            let reply = store.execute(&request(client, number, &key, act));
            let expected = match (act, model.get(&key).cloned()) {
                (Act::Get, Some(value)) => Reply { status: Status::Found, value },
                (Act::Get, None) => Status::Missing.into(),
                _ if is_again => known.unwrap().2,
                (Act::Put(to), _) => {
                    model.insert(key, to.to_vec());
                    Status::Done.into()
                }
                (Act::Delete, _) => {
                    model.remove(&key);
                    Status::Done.into()
                }
                (Act::Swap { from, to }, value) if value.as_deref() == from => {
                    model.insert(key, to.to_vec());
                    Status::Done.into()
                }
                _ => Status::Differs.into(),
            };
            prop_assert_eq!(&reply, &expected);
            last.insert(client, (number, what, reply));
            prop_assert_eq!(&store.keys, &model);
            let octets: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
            prop_assert_eq!(store.octets, octets);
            prop_assert_eq!(Store::restore(&store.snapshot()), Ok(store.clone()));
        }
    }
}
