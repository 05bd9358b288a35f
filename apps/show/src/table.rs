//! Tables as plain text: columns aligned, numbers to the right.

/// Space between two columns.
const GAP: &str = "  ";

/// Rows under a heading.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&text| text.into()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is no row but the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// The text, a line per row.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &'_ Vec<String>, at: usize| row.get(at).map_or(0, |c| c.chars().count());
        let widths: Vec<usize> = (0..columns)
            .map(|at| self.rows.iter().map(|row| cell(row, at)).max().unwrap_or(0))
            .collect();
        let right: Vec<bool> = (0..columns).map(|at| self.is_numeric(at)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (at, width) in widths.iter().copied().enumerate() {
                let content = row.get(at).map_or("", String::as_str);
                let gap = if at > 0 { GAP } else { "" };
                let padded = if right[at] {
                    format!("{gap}{content:>width$}")
                } else {
                    format!("{gap}{content:<width$}")
                };
                line.push_str(&padded);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
        cells.all(|cell| cell.bytes().all(|b| b.is_ascii_digit() || b == b','))
            && self.rows.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "count"]);
        assert!(table.is_empty());
        table.row(["a".into(), "5".into()]);
        table.row(["long".into(), "1,000".into()]);
        assert_eq!(table.render(), "name  count\na         5\nlong  1,000\n");
    }
}
