//! Figure 4: a buffer is allocated and freed, in each subsystem's own way.

use super::configuration::SPARC;
use crate::case::Case;
use crate::papers::quoted::quoted;
use crate::record::Record;
use crate::stack::pool;
use std::hint::black_box;
use xk_bsd::{Mbufs, Mt, Release};
use xk_streams::{Blocks, Priority};

const ROW: &str = "allocate and free";
/// Octets of a message of the x-kernel's, and of a block of STREAMS.
const OCTETS: usize = 64;
const OPERATIONS: u64 = 500_000;
/// Mbufs, clusters and blocks at most.
const BUFFERS_MAX: u32 = 1024;

const BSD: &str = "xk, BSD";
const STREAMS: &str = "xk, STREAMS";

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let of = |system| Record::find(records, ROW, system);
    let ratio = |(row, system)| Some(of(STREAMS)?.with(of(system)?, (row, "times"), |a, b| a / b));
    RATIOS.into_iter().filter_map(ratio).collect()
}

/// Ratios of the cost of STREAMS' buffer to the others', each with the other system.
const RATIOS: [(&str, &str); 2] = [("STREAMS / x-kernel", "xk"), ("STREAMS / BSD", BSD)];

pub(crate) fn cases() -> Vec<Case> {
    let message = Case::new(ROW, OPERATIONS, || {
        let pool = pool();
        move |operations| (0..operations).for_each(|_| drop(black_box(pool.alloc(0, OCTETS))))
    });
    let mbuf = Case::new(ROW, OPERATIONS, || {
        let mbufs = Mbufs::new(Release::Bsd43, pool(), BUFFERS_MAX, BUFFERS_MAX);
        move |operations| {
            for _ in 0..operations {
                let mbuf = black_box(mbufs.m_get(Mt::Data)).expect("mbufs are left");
                mbuf.m_freem();
            }
        }
    });
    let block = Case::new(ROW, OPERATIONS, || {
        let blocks = Blocks::of_pool(&pool(), BUFFERS_MAX as usize, 1 << 20);
        move |operations| {
            for _ in 0..operations {
                let block = black_box(blocks.allocb(OCTETS, Priority::Low));
                drop(block.expect("blocks are left"));
            }
        }
    });
    // The figure itself is a drawing; of its heights the text tells the proportion.
    let paper = RATIOS.map(|(row, _)| quoted(row, SPARC, 8.0).unit("times"));
    let mut list = vec![message, mbuf.of(BSD), block.of(STREAMS)];
    list.extend(paper);
    list
}
