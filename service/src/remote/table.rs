//! Aligns the columns of a table.

/// The space between two columns.
const GAP: &str = "  ";

/// On which side the cells of a column stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Returns the lines of a table. Rows may be shorter than `sides`, which has a side for each column.
pub(crate) fn lines(sides: &[Side], rows: &[Vec<String>]) -> Vec<String> {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..sides.len()).map(width_of).collect();
    let line_of = |row: &Vec<String>| {
        let cells = row.iter().zip(sides.iter().zip(&widths));
        let cells = cells.map(|(cell, (side, whole))| {
            let space = " ".repeat(whole.saturating_sub(width(cell)));
            match side {
                Side::Left => format!("{cell}{space}"),
                Side::Right => format!("{space}{cell}"),
            }
        });
        let line = cells.collect::<Vec<_>>().join(GAP);
        line.trim_end().to_owned()
    };
    rows.iter().map(line_of).collect()
}

/// Returns a line for each name with its value.
pub(crate) fn pairs<N: Into<String>>(pairs: impl IntoIterator<Item = (N, String)>) -> Vec<String> {
    let rows = pairs.into_iter();
    let rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.into(), value]).collect();
    lines(&[Side::Left, Side::Left], &rows)
}

/// Returns the part of a line that fits into so many columns.
pub(crate) fn cut(line: &str, n_columns: usize) -> String {
    if width(line) <= n_columns {
        return line.to_owned();
    }
    let kept = line.chars().take(n_columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        let rows: Vec<Vec<String>> = vec![
            row(&["Sequence", "Rate", "Reserve"]),
            row(&["a", "0.5 /s", "–"]),
            row(&["longer.name", "12 k/s", ""]),
        ];
        let expected = [
            "Sequence       Rate  Reserve",
            "a            0.5 /s  –",
            "longer.name  12 k/s",
        ];
        assert_eq!(
            lines(&[Side::Left, Side::Right, Side::Left], &rows),
            expected
        );
        assert_eq!(lines(&[Side::Left], &[]), [""; 0]);
    }

    #[test]
    fn names_stand_before_their_values() {
        let shown = pairs([
            ("Rate", "0 /s".to_owned()),
            ("High-water mark", "7".to_owned()),
        ]);
        assert_eq!(shown, ["Rate             0 /s", "High-water mark  7"]);
    }

    #[test]
    fn a_line_is_cut_to_the_width_of_the_terminal() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("–bcde", 4), "–bc…");
        assert_eq!(cut("abc", 0), "…");
    }
}
