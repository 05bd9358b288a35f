use super::*;
use crate::bsd::Bsd;
use crate::transfer::uiomove;
use core::cell::Cell;
use std::vec;
use std::vec::Vec;
use xk_core::message::PoolConfig;

const BOTH: [Release; 2] = [Release::Bsd43, Release::Bsd44];

fn small(release: Release, mbufs: u32, clusters: u32) -> Mbufs {
    let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
    Mbufs::new(release, pool, mbufs, clusters)
}

fn pool(release: Release) -> Mbufs {
    small(release, 1000, 100)
}

fn octets(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 3) as u8).collect()
}

/// A chain of small mbufs of these lengths.
fn chain(mbufs: &Mbufs, lens: &[usize]) -> Mbuf {
    let all = octets(lens.iter().sum());
    let mut rest = &all[..];
    let mut chain: Option<Mbuf> = None;
    for len in lens {
        let m = if chain.is_none() { mbufs.m_gethdr(Mt::Data) } else { mbufs.m_get(Mt::Data) };
        let mut m = m.unwrap();
        assert!(m.put(&rest[..*len]));
        rest = &rest[*len..];
        match &mut chain {
            Some(chain) => assert!(chain.last_mut().set_next(Some(m)).is_none()),
            None => chain = Some(m),
        }
    }
    let mut chain = chain.unwrap();
    chain.make_packet(0);
    chain
}

fn lens(m: &Mbuf) -> Vec<usize> {
    m.mbufs().map(Mbuf::m_len).collect()
}

fn all(m: &Mbuf) -> Vec<u8> {
    m.octets().collect()
}

fn sent(release: Release, n: usize) -> (Vec<usize>, Vec<bool>) {
    let bsd = Bsd::new(pool(release), 1, 1 << 18);
    let (m, taken) = uiomove(&bsd, &octets(n), 1 << 16, true).unwrap();
    assert_eq!((taken, m.m_pkthdr().len, all(&m)), (n, n, octets(n)));
    (lens(&m), m.mbufs().map(Mbuf::has_ext).collect())
}

#[test]
fn a_send_is_put_into_mbufs_by_the_rules_of_its_release() {
    let old = sent(Release::Bsd43, 1500);
    assert_eq!(old.0, [1024, 112, 112, 112, 112, 28]);
    assert_eq!(old.1, [true, false, false, false, false, false]);
    assert_eq!(sent(Release::Bsd44, 1500), (vec![1500], vec![true]));
    assert_eq!(sent(Release::Bsd43, 250).0, [112, 112, 26]);
    assert_eq!(sent(Release::Bsd44, 250), (vec![250], vec![true]));
    assert_eq!(sent(Release::Bsd43, 150).0, [112, 38]);
    assert_eq!(sent(Release::Bsd44, 150).0, [100, 50]);
    assert_eq!(sent(Release::Bsd43, 0).0, [0]);
}

#[test]
fn the_cost_of_a_send_jumps_at_multiples_of_a_cluster() {
    let mbufs = |n| sent(Release::Bsd43, n).0.len();
    // Just below half a cluster beyond a multiple, the remainder is a chain of small ones.
    assert_eq!([511, 512, 1024, 1025, 1535, 1536].map(mbufs), [5, 1, 1, 2, 6, 2]);
}

#[test]
fn in_4_4_a_small_message_has_room_in_front_for_headers() {
    let bsd = Bsd::new(pool(Release::Bsd44), 1, 1 << 18);
    let (m, _) = uiomove(&bsd, &octets(40), 1 << 16, true).unwrap();
    assert_eq!(m.leading_space(), 60);
    let m = m.m_prepend(28).unwrap();
    assert_eq!((lens(&m), m.m_pkthdr().len), (vec![68], 68));
    let (m, _) = uiomove(&bsd, &octets(1000), 1 << 16, true).unwrap();
    assert_eq!(m.leading_space(), MAX_HDR);
}

#[test]
fn m_get_gives_an_mbuf_without_data_and_counts_its_type() {
    let mbufs = pool(Release::Bsd43);
    let m = mbufs.m_get(Mt::Pcb).unwrap();
    assert_eq!((m.m_len(), m.m_flags(), m.size()), (0, 0, 112));
    let header = mbufs.m_gethdr(Mt::Header).unwrap();
    assert_eq!((header.m_flags(), header.m_pkthdr()), (M_PKTHDR, PktHdr::default()));
    let stat = mbufs.mbstat();
    assert_eq!((stat.mbufs, stat.in_use), (2, 2));
    assert_eq!((stat.kinds[Mt::Pcb as usize], stat.kinds[Mt::Header as usize]), (1, 1));
    assert!(m.m_free().is_none());
    header.m_freem();
    let again = mbufs.m_get(Mt::Data).unwrap();
    assert_eq!((mbufs.mbstat().mbufs, mbufs.mbstat().in_use), (2, 1), "from the free list");
    drop(again);
    assert_eq!(mbufs.mbstat().in_use, 0, "one that is dropped is free, too");
}

#[test]
fn an_exhausted_pool_denies_and_counts() {
    let mbufs = small(Release::Bsd44, 2, 1);
    let one = mbufs.m_get(Mt::Data).unwrap();
    let mut two = mbufs.m_get(Mt::Data).unwrap();
    assert_eq!(mbufs.m_get(Mt::Data).err(), Some(Errno::ENOBUFS));
    two.mclget().unwrap();
    assert_eq!(mbufs.mbstat().drops, 1);
    assert!(mbufs.take_wants_drain() && !mbufs.take_wants_drain());
    drop(one);
    let mut three = mbufs.m_get(Mt::Data).unwrap();
    assert_eq!(three.mclget(), Err(Errno::ENOBUFS), "M_EXT is not set");
    assert!(!three.has_ext());
    two.m_freem();
    assert_eq!(three.mclget(), Ok(()));
}

#[test]
fn clusters_are_bounded_by_the_kernels_pool_as_well() {
    let kernels = Pool::new(&PoolConfig::with_octets_max(64 << 10)).unwrap();
    let mbufs = Mbufs::new(Release::Bsd44, kernels, 1000, 1000);
    let mut held = Vec::new();
    loop {
        let mut m = mbufs.m_get(Mt::Data).unwrap();
        if m.mclget().is_err() {
            break;
        }
        held.push(m);
    }
    assert!((8..32).contains(&held.len()));
    assert_eq!(mbufs.mbstat().clusters_in_use as usize, held.len());
    drop(held);
    assert_eq!(mbufs.mbstat().clusters_in_use, 0);
}

#[test]
fn mclget_wants_an_mbuf_without_data() {
    let mut m = pool(Release::Bsd43).m_copyin(Mt::Data, &[1]).unwrap();
    assert_eq!(m.mclget(), Err(Errno::EINVAL));
}

#[test]
fn m_prepend_uses_the_room_in_front_or_an_mbuf_of_its_own() {
    for release in BOTH {
        let mbufs = pool(release);
        let m = chain(&mbufs, &[50, 60]);
        let m = m.m_prepend(20).unwrap();
        assert_eq!((lens(&m), m.m_pkthdr().len), (vec![20, 50, 60], 130));
        assert_eq!(m.m_next().unwrap().m_flags() & M_PKTHDR, 0, "the header has moved");
        let m = m.m_prepend(14).unwrap();
        assert_eq!((lens(&m), m.m_pkthdr().len), (vec![34, 50, 60], 144));
        // More than an mbuf holds: the chain is freed.
        assert_eq!(m.m_prepend(release.mhlen() + 1).err(), Some(Errno::EMSGSIZE));
        assert_eq!(mbufs.mbstat().in_use, 0);
    }
}

#[test]
fn m_prepend_frees_the_chain_if_there_is_no_mbuf() {
    let mbufs = small(Release::Bsd43, 2, 1);
    let m = chain(&small(Release::Bsd43, 9, 1), &[112]);
    let taken = [mbufs.m_get(Mt::Data).unwrap(), mbufs.m_get(Mt::Data).unwrap()];
    assert!(m.m_prepend(8).is_ok());
    let [m, other] = taken;
    let mut m = m;
    assert!(m.put(&[0; 112]));
    assert_eq!(m.m_prepend(8).err(), Some(Errno::ENOBUFS));
    assert_eq!(mbufs.mbstat().in_use, 1);
    drop(other);
}

#[test]
fn m_pullup_brings_octets_together_or_frees_the_chain() {
    for release in BOTH {
        let mbufs = pool(release);
        let m = chain(&mbufs, &[10, 10, 30]);
        let m = m.m_pullup(25).unwrap();
        assert_eq!((lens(&m), all(&m), m.m_pkthdr().len), (vec![25, 25], octets(50), 50));
        let m = m.m_pullup(20).unwrap();
        assert_eq!(lens(&m), [25, 25], "they lie together already");
        assert_eq!(m.m_pullup(51).err(), Some(Errno::EMSGSIZE), "fewer octets");
        assert_eq!(mbufs.mbstat().in_use, 0);
        let m = chain(&mbufs, &[90, 90]);
        assert_eq!(m.m_pullup(release.mhlen() + 1).err(), Some(Errno::EINVAL), "more than MHLEN");
        assert_eq!(mbufs.mbstat().in_use, 0);
    }
}

#[test]
fn m_pullup_copies_out_of_a_cluster() {
    let mbufs = pool(Release::Bsd44);
    let mut m = mbufs.m_gethdr(Mt::Data).unwrap();
    m.mclget().unwrap();
    assert!(m.put(&octets(20)));
    m.set_next(Some(mbufs.m_copyin(Mt::Data, &octets(20)).unwrap()));
    m.make_packet(0);
    let m = m.m_pullup(30).unwrap();
    assert_eq!((lens(&m), m.has_ext(), m.m_pkthdr().len), (vec![30, 10], false, 40));
    assert_eq!(mbufs.mbstat().clusters_in_use, 0);
}

#[test]
fn m_copym_shares_clusters_and_copies_small_mbufs() {
    for release in BOTH {
        let bsd = Bsd::new(pool(release), 1, 1 << 18);
        let n = 1024 + 300;
        let (mut m, _) = uiomove(&bsd, &octets(n), 1 << 16, false).unwrap();
        let before = bsd.mbufs().mbstat();
        let copy = m.m_copym(0, M_COPYALL).unwrap();
        assert_eq!((all(&copy), copy.m_pkthdr().len), (octets(n), n));
        assert_eq!(copy.mtod().as_ptr(), m.mtod().as_ptr(), "the cluster is shared");
        assert_eq!((copy.leading_space(), copy.trailing_space()), (0, 0));
        assert_eq!(m.trailing_space(), 0, "none of them is written");
        assert!(m.mtod_mut().is_none());
        let part = m.m_copym(1000, 100).unwrap();
        assert_eq!((all(&part), part.m_flags() & M_PKTHDR), (octets(n)[1000..1100].to_vec(), 0));
        drop((copy, part));
        assert_eq!(bsd.mbufs().mbstat(), MbStat { mbufs: bsd.mbufs().mbstat().mbufs, ..before });
    }
}

#[test]
fn m_copym_beyond_the_end_is_refused() {
    let m = chain(&pool(Release::Bsd43), &[50, 50]);
    assert_eq!(m.m_copym(0, 101).err(), Some(Errno::EINVAL));
    assert_eq!(m.m_copym(101, 0).map(|m| m.m_len()).ok(), Some(0), "as in BSD, for no octets");
    assert_eq!(m.m_copym(101, M_COPYALL).err(), Some(Errno::EINVAL));
    assert_eq!(m.m_copym(100, M_COPYALL).map(|m| m.m_length()).ok(), Some(0));
    assert_eq!(m.m_copym(0, 100).map(|m| m.m_length()).ok(), Some(100));
}

#[test]
fn m_adj_takes_from_either_end_and_follows_in_the_header() {
    let mut m = chain(&pool(Release::Bsd44), &[10, 20, 30]);
    m.m_adj(15);
    assert_eq!((lens(&m), m.m_pkthdr().len), (vec![0, 15, 30], 45));
    m.m_adj(-35);
    assert_eq!((lens(&m), m.m_pkthdr().len), (vec![0, 10, 0], 10));
    assert_eq!(all(&m), octets(60)[15..25]);
    m.m_adj(100);
    assert_eq!((m.m_length(), m.m_pkthdr().len), (0, 0), "all of it, and no more");
    m.m_adj(-1);
    assert_eq!(m.m_length(), 0);
}

#[test]
fn m_cat_fills_the_last_mbuf_and_links_what_does_not_fit() {
    let mbufs = pool(Release::Bsd43);
    let mut m = chain(&mbufs, &[50]);
    m.m_cat(chain(&mbufs, &[40, 100, 3]));
    assert_eq!(lens(&m), [90, 100, 3]);
    assert_eq!(m.m_pkthdr().len, 50, "the header stays as it is");
    let mut cluster = mbufs.m_get(Mt::Data).unwrap();
    cluster.mclget().unwrap();
    m.m_cat(cluster);
    assert_eq!(lens(&m), [90, 100, 3, 0]);
}

#[test]
fn m_split_cuts_and_answers_the_rest() {
    for release in BOTH {
        let mbufs = pool(release);
        for at in (0..=150).step_by(if cfg!(miri) { 15 } else { 1 }) {
            let mut m = chain(&mbufs, &[50, 60, 40]);
            let back = m.m_split(at).unwrap();
            assert_eq!((all(&m), m.m_pkthdr().len), (octets(150)[..at].to_vec(), at));
            assert_eq!((all(&back), back.m_pkthdr().len), (octets(150)[at..].to_vec(), 150 - at));
            assert_ne!(back.m_flags() & M_PKTHDR, 0);
        }
        let mut m = chain(&mbufs, &[50]);
        assert_eq!(m.m_split(51).err(), Some(Errno::EINVAL));
        assert_eq!(all(&m), octets(50), "it is as it was");
    }
}

#[test]
fn m_split_that_finds_no_mbuf_leaves_the_chain() {
    let mbufs = small(Release::Bsd43, 1, 1);
    let mut m = chain(&small(Release::Bsd43, 3, 1), &[50]);
    assert!(m.m_split(20).is_ok());
    let mut m = mbufs.m_copyin(Mt::Data, &octets(50)).unwrap();
    assert_eq!(m.m_split(20).err(), Some(Errno::ENOBUFS));
    assert_eq!(all(&m), octets(50));
}

#[test]
fn m_copydata_and_m_copyback_reach_across_mbufs() {
    let mut m = chain(&pool(Release::Bsd43), &[10, 10, 10]);
    let mut to = [0; 12];
    assert_eq!((m.m_copydata(5, &mut to), &to[..]), (12, &octets(30)[5..17]));
    assert_eq!(m.m_copydata(25, &mut to), 5, "as many as there are");
    assert_eq!(m.m_copydata(99, &mut to), 0);
    m.m_copyback(8, &[1, 2, 3, 4]).unwrap();
    assert_eq!(all(&m)[7..13], [octets(30)[7], 1, 2, 3, 4, octets(30)[12]]);
    m.m_copyback(200, &[9; 3]).unwrap();
    assert_eq!((m.m_length(), m.m_pkthdr().len), (203, 203));
    assert_eq!(all(&m)[30..200], [0; 170], "what lies between is zero");
    assert_eq!(all(&m)[200..], [9; 3]);
}

#[test]
fn checksums_reach_across_mbufs_of_odd_lengths() {
    let m = chain(&pool(Release::Bsd43), &[7, 1, 13, 30]);
    let flat = octets(51);
    for off in 0..20 {
        let whole = xk_kit::net::checksum::checksum(&flat[off..off + 31]);
        assert_eq!(m.in_cksum(off, 31), whole, "from {off}");
    }
}

struct Lent(Vec<u8>, Rc<Cell<u32>>);

impl ExtBuf for Lent {
    fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

#[test]
fn storage_of_others_is_lent_and_freed_once() {
    let mbufs = pool(Release::Bsd43);
    let freed = Rc::new(Cell::new(0));
    let buf: Rc<dyn ExtBuf> = Rc::new(Lent(octets(500), Rc::clone(&freed)));
    let at = buf.octets().as_ptr();
    let mut m = mbufs.m_extattach(buf, 100, 400).unwrap();
    assert_eq!((m.mtod().as_ptr(), m.m_len()), (at.wrapping_add(100), 400));
    assert!(m.mtod_mut().is_none() && m.has_ext());
    let copy = m.m_copym(10, 20).unwrap();
    m.m_freem();
    assert_eq!((freed.get(), copy.mtod()), (0, &octets(500)[110..130]));
    let m = copy.m_prepend(8).unwrap();
    assert_eq!(lens(&m), [8, 20], "nothing is written in front of it");
    m.m_freem();
    assert_eq!((freed.get(), mbufs.mbstat().clusters_in_use), (1, 0));
    let short: Rc<dyn ExtBuf> = Rc::new(Lent(octets(5), freed));
    assert_eq!(mbufs.m_extattach(short, 3, 3).err(), Some(Errno::EINVAL));
}

#[test]
fn messages_are_lent_and_clusters_given_without_a_copy() {
    let kernels = Pool::new(&PoolConfig::default()).unwrap();
    let mbufs = Mbufs::new(Release::Bsd44, kernels.clone(), 100, 100);
    let mut message = kernels.copy_from(64, &octets(700)).unwrap();
    message.join(kernels.copy_from(0, &octets(300)).unwrap());
    let at = message.front_slice().as_ptr();
    let mut m = mbufs.m_lend(message, 3).unwrap();
    assert_eq!((lens(&m), m.m_pkthdr()), (vec![700, 300], PktHdr { rcvif: 3, len: 1000 }));
    assert_eq!(m.mtod().as_ptr(), at);
    m.m_adj(14);
    m.m_adj(-10);
    let back = m.into_message(&kernels, 32).unwrap();
    let mut whole = octets(700)[14..].to_vec();
    whole.extend_from_slice(&octets(300)[..290]);
    assert!(back.eq_octets(&whole));
    assert_eq!(back.front_slice().as_ptr(), at.wrapping_add(14));
    assert!(back.headroom() >= 14, "what was taken off is headroom");
    assert_eq!((mbufs.mbstat().in_use, mbufs.mbstat().clusters_in_use), (0, 0));

    let bsd = Bsd::new(mbufs, 1, 1 << 18);
    let (m, _) = uiomove(&bsd, &octets(1500), 1 << 16, true).unwrap();
    let at = m.mtod().as_ptr();
    let m = m.m_prepend(28).unwrap().m_prepend(14).unwrap();
    let sent = m.into_message(&kernels, 32).unwrap();
    assert_eq!((sent.len(), sent.front_slice().as_ptr()), (1542, at.wrapping_sub(42)));
}

#[test]
fn small_mbufs_are_copied_into_messages_together() {
    let kernels = Pool::new(&PoolConfig::default()).unwrap();
    for release in BOTH {
        let mbufs = Mbufs::new(release, kernels.clone(), 100, 100);
        let m = chain(&mbufs, &[100, 50, 7]);
        let message = m.into_message(&kernels, 20).unwrap();
        assert!(message.eq_octets(&octets(157)) && message.single_slice().is_some());
        assert!(message.headroom() >= 20);
        let empty = mbufs.m_gethdr(Mt::Data).unwrap();
        assert!(empty.into_message(&kernels, 0).unwrap().is_empty());
    }
}

#[test]
fn a_message_that_finds_no_mbuf_is_counted() {
    let kernels = Pool::new(&PoolConfig::default()).unwrap();
    let mbufs = Mbufs::new(Release::Bsd43, kernels.clone(), 1, 1);
    let mut message = kernels.copy_from(0, &octets(10)).unwrap();
    message.join(kernels.copy_from(0, &octets(10)).unwrap());
    assert_eq!(mbufs.m_lend(message, 0).err(), Some(Errno::ENOBUFS));
    let stat = mbufs.mbstat();
    assert_eq!((stat.in_use, stat.clusters_in_use, stat.drops), (0, 0, 1));
}

#[test]
fn a_frame_is_copied_into_clusters_where_it_is_long() {
    let kernels = Pool::new(&PoolConfig::default()).unwrap();
    let message = kernels.copy_from(0, &octets(1514)).unwrap();
    let old = Mbufs::new(Release::Bsd43, kernels.clone(), 100, 100);
    let m = old.m_devget(&message, 1).unwrap();
    assert_eq!((lens(&m), all(&m)), (vec![1024, 112, 112, 112, 112, 42], octets(1514)));
    let new = Mbufs::new(Release::Bsd44, kernels, 100, 100);
    assert_eq!(lens(&new.m_devget(&message, 1).unwrap()), [1514]);
}

#[test]
fn a_long_chain_is_dropped_without_recursion() {
    // Miri is slow.
    let count = if cfg!(miri) { 1000 } else { 100_000 };
    let mbufs = small(Release::Bsd43, count, 1);
    let mut chain: Option<Mbuf> = None;
    for _ in 0..count {
        let mut m = mbufs.m_get(Mt::Data).unwrap();
        m.set_next(chain);
        chain = Some(m);
    }
    drop(chain);
    assert_eq!(mbufs.mbstat().in_use, 0);
}
