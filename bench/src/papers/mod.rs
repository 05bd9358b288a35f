//! The tables and figures of the papers, each with the paper's column, Linux's and ours.
//!
//! Hutchinson and Peterson, "The x-Kernel: An Architecture for Implementing Network Protocols",
//! IEEE Transactions on Software Engineering 17(1), January 1991, section IV. Its machines were two
//! Sun 3/75 (68020, 16.67 MHz) on a 10 Mbit/s Ethernet; its Unix was SunOS 4.0.3. The second paper
//! is named where its tables are. Their figures stand beside ours to compare proportions within a
//! column, not speeds across.

pub(crate) mod demultiplexing;
pub(crate) mod figure_6;
mod increments;
pub(crate) mod indexed;
pub(crate) mod linux;
pub(crate) mod mechanisms;
pub(crate) mod member;
pub(crate) mod organisation;
pub(crate) mod psync;
mod quoted;
pub(crate) mod rpc;
mod segments;
mod stamp_unsafe;
pub(crate) mod subsystems;
pub(crate) mod table_1;
pub(crate) mod table_2;
pub(crate) mod tables_3_to_5;
mod times;
pub(crate) mod udp_server;
pub(crate) mod user_level;

#[cfg(test)]
mod tests {
    use crate::record::Record;

    /// The rows that a benchmark has, of all systems, as if each had been measured.
    pub(super) fn records(name: &'static str) -> Vec<Record> {
        let all = crate::list::benchmarks();
        let found = all.iter().find(|benchmark| benchmark.name == name);
        let benchmark = found.unwrap_or_else(|| panic!("no benchmark is called {name}"));
        let measured = |case: crate::case::Case| Record {
            bench: name,
            row: case.row,
            system: case.system,
            min: 1.0,
            median: 2.0,
            max: 3.0,
            runs: 1,
            ..Record::default()
        };
        let mut records: Vec<Record> = (benchmark.cases)().into_iter().map(measured).collect();
        records.extend((benchmark.derived)(&records));
        records
    }

    /// `xk bench all` makes every row that the page promises, of ours.
    #[test]
    fn every_row_of_the_page_is_in_its_benchmark() {
        let page = include_str!("../../../docs/papers.md");
        let mut promised = 0;
        for line in page.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let ["", _, bench, rows, ""] = cells[..] else {
                continue;
            };
            let Some(name) = bench.strip_prefix('`').and_then(|b| b.strip_suffix('`')) else {
                continue;
            };
            let records = records(name.to_owned().leak());
            for row in rows.split("; ") {
                let is_row = |record: &&Record| {
                    let rest = record.row.strip_prefix(row);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' ']))
                };
                let mut found = records.iter().filter(is_row);
                let has_ours = found.any(|record| record.system.starts_with("xk"));
                assert!(has_ours, "{name} has no row {row}");
                promised += 1;
            }
        }
        assert!(promised > 50, "the page names {promised} rows");
    }
}
