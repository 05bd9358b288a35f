//! Chains against a vector of octets.

use super::*;
use crate::bsd::Bsd;
use crate::transfer::uiomove;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use xk_core::message::PoolConfig;

#[derive(Clone, Debug)]
enum Act {
    Prepend(usize),
    Pullup(usize),
    Adj(isize),
    Split(usize),
    SplitAndCat(usize),
    Copy(usize, usize),
    Copyback(usize, u8, usize),
    Append(usize),
    ThroughMessage,
    Lend,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0usize..120).prop_map(Act::Prepend),
        (0usize..120).prop_map(Act::Pullup),
        (-2000isize..2000).prop_map(Act::Adj),
        (-40isize..40).prop_map(Act::Adj),
        (0usize..3000).prop_map(Act::Split),
        (0usize..3000).prop_map(Act::SplitAndCat),
        (0usize..2000, 0usize..2000).prop_map(|(at, n)| Act::Copy(at, n)),
        (0usize..2500, any::<u8>(), 0usize..300).prop_map(|(at, o, n)| Act::Copyback(at, o, n)),
        (0usize..1400).prop_map(Act::Append),
        Just(Act::ThroughMessage),
        Just(Act::Lend),
    ]
}

/// Applies an act to the chain and its model; none if the chain was freed.
fn apply(
    (bsd, pool): (&Bsd, &Pool),
    mut m: Mbuf,
    mut model: Vec<u8>,
    act: &Act,
) -> Option<(Mbuf, Vec<u8>)> {
    let mbufs = bsd.mbufs();
    let fill = |n: usize| (0..n).map(|i| (i * 11 + 5) as u8).collect::<Vec<u8>>();
    match *act {
        Act::Prepend(n) => {
            let mut m = match m.m_prepend(n) {
                Ok(m) => m,
                Err(error) => {
                    assert_eq!(error, Errno::EMSGSIZE);
                    assert!(n > mbufs.release().mhlen().min(mbufs.release().mlen()));
                    return None;
                }
            };
            if n > 0 {
                m.mtod_mut().unwrap()[..n].copy_from_slice(&fill(n));
            }
            model.splice(0..0, fill(n));
            return Some((m, model));
        }
        Act::Pullup(n) => {
            let before = m.m_len();
            return match m.m_pullup(n) {
                Ok(m) => {
                    assert!(m.m_len() >= n);
                    Some((m, model))
                }
                Err(Errno::EINVAL) => {
                    assert!(n > mbufs.release().mhlen() && n > before);
                    None
                }
                Err(error) => {
                    assert_eq!((error, n > model.len()), (Errno::EMSGSIZE, true));
                    None
                }
            };
        }
        Act::Adj(n) => {
            m.m_adj(n);
            let cut = n.unsigned_abs().min(model.len());
            if n >= 0 {
                model.drain(..cut);
            } else {
                model.truncate(model.len() - cut);
            }
        }
        Act::Split(at) => match m.m_split(at) {
            Ok(back) => {
                let rest = model.split_off(at);
                assert!(back.octets().eq(rest.iter().copied()));
                assert_eq!(back.m_pkthdr().len, rest.len());
                return Some((back, rest));
            }
            Err(error) => assert_eq!((error, at > model.len()), (Errno::EINVAL, true)),
        },
        Act::SplitAndCat(at) => {
            if let Ok(back) = m.m_split(at) {
                m.m_cat(back);
                m.m_pkthdr_mut().len = model.len();
            }
        }
        Act::Copy(at, n) => {
            let (copy, part) = (m.m_copym(at, n), model.get(at..at.saturating_add(n)));
            match (copy, part) {
                (Ok(copy), Some(part)) => {
                    assert!(copy.octets().eq(part.iter().copied()));
                    // The next acts are on the copy; what it shares is not written.
                    let before: Vec<u8> = m.octets().collect();
                    assert_eq!(before, model);
                    let mut copy = copy;
                    copy.make_packet(0);
                    return Some((copy, part.to_vec()));
                }
                (Ok(_), None) => assert_eq!(n, 0),
                (Err(error), None) => assert_eq!(error, Errno::EINVAL),
                (Err(error), Some(_)) => panic!("{error}"),
            }
        }
        Act::Copyback(at, octet, n) => {
            let octets = vec![octet; n];
            if m.m_copyback(at, &octets).is_ok() {
                let end = model.len().max(at + n);
                model.resize(end, 0);
                model[at..at + n].copy_from_slice(&octets);
            } else {
                // It lies partly in what is shared: the model follows the chain.
                model = m.octets().collect();
            }
            m.m_pkthdr_mut().len = model.len();
        }
        Act::Append(n) => {
            let (more, _) = uiomove(bsd, &fill(n), 1 << 16, n % 2 == 0).unwrap();
            m.m_cat(more);
            model.extend(fill(n));
            m.m_pkthdr_mut().len = model.len();
        }
        Act::ThroughMessage => {
            let message = m.into_message(pool, 16).unwrap();
            assert!(message.eq_octets(&model));
            return Some((mbufs.m_devget(&message, 0).unwrap(), model));
        }
        Act::Lend => {
            let message = m.into_message(pool, 16).unwrap();
            return Some((mbufs.m_lend(message, 0).unwrap(), model));
        }
    }
    Some((m, model))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_chain_is_its_octets(
        new: bool,
        first in 0usize..2500,
        acts in proptest::collection::vec(act(), 0..30),
    ) {
        let release = if new { Release::Bsd44 } else { Release::Bsd43 };
        let pool = Pool::new(&PoolConfig::with_octets_max(4 << 20)).unwrap();
        let bsd = Bsd::new(Mbufs::new(release, pool.clone(), 10_000, 1000), 1, 1 << 18);
        let octets: Vec<u8> = (0..first).map(|i| (i * 3) as u8).collect();
        let (m, _) = uiomove(&bsd, &octets, 1 << 16, true).unwrap();
        let mut state = Some((m, octets));
        for act in &acts {
            let Some((m, model)) = state.take() else { break };
            state = apply((&bsd, &pool), m, model, act);
            if let Some((m, model)) = &state {
                let octets: Vec<u8> = m.octets().collect();
                prop_assert_eq!(&octets, model, "after {:?}", act);
                prop_assert_eq!(m.m_pkthdr().len, model.len(), "after {:?}", act);
            }
        }
        drop(state);
        let stat = bsd.mbufs().mbstat();
        prop_assert_eq!((stat.in_use, stat.clusters_in_use), (0, 0));
        prop_assert_eq!(stat.kinds, [0; MT_TYPES]);
    }
}
