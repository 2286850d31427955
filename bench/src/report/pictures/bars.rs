//! Draws one bar for each contender, with its value at the end.

use plotters::prelude::*;

use super::canvas::{Area, Drawn, FAINT, FONT, GRID, REFERENCE, SUBJECT, TEXT};
use crate::{report::units, row::Unit};

pub(crate) struct Bar<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: f64,
    /// The reason why the value says nothing about the contender, if there is one. The bar is pale
    /// then.
    pub(crate) no_result: Option<&'a str>,
}

/// Draws the bars, the first one on top. The end of a segmented range is itself one of the
/// segments.
pub(crate) fn fill(area: &Area<'_>, bars: &[Bar<'_>], about: &str, unit: Unit) -> Drawn {
    let n_bars = bars.len();
    let longest = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    // Words next to a bar need space.
    let has_words = bars.iter().any(|bar| bar.no_result.is_some());
    let room = if has_words { 1.35 } else { 1.12 };
    let show = |value: f64| units::value(value, unit);
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(46)
        .y_label_area_size(236)
        .build_cartesian_2d(0.0..longest * room, (0..n_bars - 1).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 14).into_font().color(&TEXT))
        .x_desc(about)
        .x_label_formatter(&|value| show(*value))
        .y_labels(n_bars)
        .y_label_formatter(&|place| match place {
            SegmentValue::CenterOf(at) if *at < n_bars => bars[n_bars - 1 - at].name.to_owned(),
            SegmentValue::CenterOf(_) | SegmentValue::Exact(_) | SegmentValue::Last => {
                String::new()
            }
        })
        .draw()?;
    chart.draw_series(bars.iter().enumerate().map(|(at, bar)| {
        let place = n_bars - 1 - at;
        let corners = [
            (0.0, SegmentValue::Exact(place)),
            (bar.value, SegmentValue::Exact(place + 1)),
        ];
        let color = if at == 0 { SUBJECT } else { REFERENCE };
        let strength = if bar.no_result.is_some() { 0.4 } else { 1.0 };
        let mut drawn = Rectangle::new(corners, color.mix(strength).filled());
        drawn.set_margin(5, 5, 0, 0);
        drawn
    }))?;
    chart.draw_series(bars.iter().enumerate().map(|(at, bar)| {
        let end = (bar.value, SegmentValue::CenterOf(n_bars - 1 - at));
        let style = (FONT, 14).into_font().color(&TEXT);
        let words = bar.no_result.map(|words| format!(", {words}"));
        let text = show(bar.value) + &words.unwrap_or_default();
        EmptyElement::at(end) + Text::new(text, (6, -7), style)
    }))?;
    Ok(())
}
