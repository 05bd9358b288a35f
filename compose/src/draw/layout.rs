//! A layered layout: the order of the layers becomes rows of boxes with straight or once-bent lines
//! between neighbouring rows.
//!
//! The steps are those of Sugiyama, Tagawa and Toda (1981): rows by the longest way down, a point
//! on every row that a line passes, an order in each row by the mean place of the neighbours, and
//! then places as near as possible to the neighbours'.

/// A box, or a point where a line passes a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    /// The node that is drawn here; `None` for a point on a line.
    pub(super) node: Option<usize>,
    /// The row, 0 for the lowest.
    pub(super) row: usize,
    /// The left edge.
    pub(super) left: i64,
    /// The width; odd, so that there is a middle.
    pub(super) width: i64,
}

impl Cell {
    pub(super) fn middle(&self) -> i64 {
        self.left + self.width / 2
    }
}

/// Places of all nodes and lines of a drawing.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub(super) cells: Vec<Cell>,
    /// The cells of each row, left to right; row 0 is the lowest.
    pub(super) rows: Vec<Vec<usize>>,
    /// Lines from a cell to one in the row below.
    pub(super) lines: Vec<(usize, usize)>,
    /// The width of it all.
    pub(super) width: i64,
}

/// Rounds of ordering and placing; more change nothing that is visible.
const ROUNDS: usize = 12;

/// Lays out nodes of these widths that stand on each other; `order` names each node after all that
/// it stands on. Boxes of a row are `gap` apart.
pub(super) fn layout(widths: &[i64], lowers: &[&[usize]], order: &[usize], gap: i64) -> Layout {
    let mut layout = rows(widths, lowers, order);
    for _ in 0..ROUNDS {
        sort(&mut layout, false);
        sort(&mut layout, true);
    }
    pack(&mut layout, gap);
    for _ in 0..ROUNDS {
        place(&mut layout, gap, true);
        place(&mut layout, gap, false);
    }
    place(&mut layout, gap, true);
    let left = layout.cells.iter().map(|cell| cell.left).min().unwrap_or(0);
    for cell in &mut layout.cells {
        cell.left -= left;
    }
    let right = |cell: &Cell| cell.left + cell.width;
    layout.width = layout.cells.iter().map(right).max().unwrap_or(0);
    layout
}

fn rows(widths: &[i64], lowers: &[&[usize]], order: &[usize]) -> Layout {
    let mut row = vec![0; widths.len()];
    for &at in order {
        let below = lowers[at].iter().map(|lower| row[*lower] + 1).max();
        row[at] = below.unwrap_or(0);
    }
    let mut layout = Layout::default();
    let cell = |node, row, width: i64| Cell { node, row, left: 0, width: width | 1 };
    let boxes = widths.iter().zip(&row).enumerate();
    layout.cells = boxes.map(|(at, (width, row))| cell(Some(at), *row, *width)).collect();
    for at in 0..widths.len() {
        for &lower in lowers[at] {
            let mut from = at;
            for passed in (row[lower] + 1..row[at]).rev() {
                layout.cells.push(cell(None, passed, 1));
                let point = layout.cells.len() - 1;
                layout.lines.push((from, point));
                from = point;
            }
            layout.lines.push((from, lower));
        }
    }
    let count = layout.cells.iter().map(|cell| cell.row + 1).max();
    layout.rows = vec![Vec::new(); count.unwrap_or(0)];
    for (at, cell) in layout.cells.iter().enumerate() {
        layout.rows[cell.row].push(at);
    }
    layout
}

/// For each cell its neighbours in the row above, or below.
fn neighbours(layout: &Layout, above: bool) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); layout.cells.len()];
    for &(upper, lower) in &layout.lines {
        let (of, neighbour) = if above { (lower, upper) } else { (upper, lower) };
        neighbours[of].push(neighbour);
    }
    neighbours
}

/// Puts the cells of each row into the order of their neighbours above, or below.
fn sort(layout: &mut Layout, above: bool) {
    let neighbours = neighbours(layout, above);
    let mut at_place = vec![0.0; layout.cells.len()];
    let note = |row: &[usize], at_place: &mut Vec<f64>| {
        for (place, cell) in row.iter().enumerate() {
            at_place[*cell] = place as f64;
        }
    };
    for row in &layout.rows {
        note(row, &mut at_place);
    }
    let count = layout.rows.len();
    let each: Vec<usize> = if above { (0..count).rev().collect() } else { (0..count).collect() };
    for row in each {
        let mean = |cell: &usize| {
            let near = &neighbours[*cell];
            match near.len() {
                0 => at_place[*cell],
                n => near.iter().map(|other| at_place[*other]).sum::<f64>() / n as f64,
            }
        };
        let mut keyed: Vec<(f64, usize)> =
            layout.rows[row].iter().map(|cell| (mean(cell), *cell)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        layout.rows[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
        note(&layout.rows[row], &mut at_place);
    }
}

fn pack(layout: &mut Layout, gap: i64) {
    for row in &layout.rows {
        let mut left = 0;
        for &cell in row {
            layout.cells[cell].left = left;
            left += layout.cells[cell].width + gap;
        }
    }
}

/// Moves the cells of every row as near as possible to the middle of their neighbours, without
/// changing their order.
fn place(layout: &mut Layout, gap: i64, above: bool) {
    let neighbours = neighbours(layout, above);
    let count = layout.rows.len();
    for step in 0..count {
        let row = if above { count - 1 - step } else { step };
        let wanted: Vec<f64> = layout.rows[row]
            .iter()
            .map(|cell| {
                let near = &neighbours[*cell];
                let own = &layout.cells[*cell];
                match near.len() {
                    0 => own.left as f64,
                    n => {
                        let sum: i64 = near.iter().map(|o| layout.cells[*o].middle()).sum();
                        sum as f64 / n as f64 - (own.width / 2) as f64
                    }
                }
            })
            .collect();
        // Without the widths and gaps to the left, the places must only not fall.
        let mut taken = 0;
        let mut offsets = Vec::with_capacity(wanted.len());
        for &cell in &layout.rows[row] {
            offsets.push(taken);
            taken += layout.cells[cell].width + gap;
        }
        let free = wanted.iter().zip(&offsets).map(|(w, o)| w - *o as f64);
        let placed = not_falling(free.collect());
        let cells = layout.rows[row].clone();
        for ((cell, place), offset) in cells.into_iter().zip(placed).zip(offsets) {
            layout.cells[cell].left = place.round() as i64 + offset;
        }
    }
}

/// The sequence nearest to `wanted`, in squares, that does not fall: neighbours that would are
/// drawn together to their mean.
fn not_falling(wanted: Vec<f64>) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for value in wanted {
        let mut block = (value, 1);
        while let Some((mean, count)) = blocks.last().copied()
            && mean > block.0
        {
            blocks.pop();
            let sum = mean * count as f64 + block.0 * block.1 as f64;
            block = (sum / (count + block.1) as f64, count + block.1);
        }
        blocks.push(block);
    }
    let spread = |(mean, count): (f64, usize)| std::iter::repeat_n(mean, count);
    blocks.into_iter().flat_map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_straightened() {
        assert_eq!(not_falling(vec![1.0, 3.0, 2.0]), [1.0, 2.5, 2.5]);
        assert_eq!(not_falling(vec![3.0, 2.0, 1.0]), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn boxes_do_not_overlap_and_towers_are_straight() {
        // A wire, a layer on it, two on that, one on both and on the wire's layer.
        let lowers: [&[usize]; 5] = [&[], &[0], &[1], &[1], &[2, 3, 1]];
        let layout = layout(&[7, 9, 11, 5, 7], &lowers, &[0, 1, 2, 3, 4], 2);
        assert_eq!(layout.rows.len(), 4);
        for row in &layout.rows {
            for pair in row.windows(2) {
                let (a, b) = (&layout.cells[pair[0]], &layout.cells[pair[1]]);
                assert!(a.left + a.width + 2 <= b.left, "{a:?} {b:?}");
            }
        }
        assert_eq!(layout.cells[0].middle(), layout.cells[1].middle());
        // The line from the topmost to the layer passes a row.
        assert_eq!(layout.lines.len(), 7);
    }
}
