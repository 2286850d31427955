//! The table, in Markdown.

use crate::row::Row;

/// All rows, a line for each reference.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for series in &row.series {
            text.push_str(&format!(
                "| {} | {} | {:?} | {:?} | {:?} |\n",
                row.title,
                series.name,
                series.value(),
                series.cpu_us().map(|cpu| cpu.median),
                row.ratio(series).map(|ratio| ratio.median),
            ));
        }
    }
    text
}
