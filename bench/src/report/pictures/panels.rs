//! Draws several bars for each kind of key, in one panel for each server.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::canvas::{Area, Drawn, FAINT, FONT, GRID, TEXT};

/// The figures of one server, by kind of key.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// The name of each kind, and its values: one for each entry of the legend.
    pub(crate) bars: Vec<(String, Vec<f64>)>,
}

/// What is the same in all panels.
pub(crate) struct Legend {
    pub(crate) about: &'static str,
    pub(crate) show: fn(f64) -> String,
    /// The names of a kind's values, and their colours.
    pub(crate) values: &'static [(&'static str, RGBColor)],
}

/// The width for the names of the kinds, in pixels.
const NAMES: u32 = 190;
/// The height of the legend, in pixels.
const TOP: u32 = 28;

/// Draws the panels next to each other. The names of the kinds stand to the left of the first
/// panel.
pub(crate) fn fill(area: &Area<'_>, panels: &[Panel], legend: &Legend) -> Drawn {
    let (above, below) = area.split_vertically(TOP);
    fill_legend(&above, legend)?;
    let (width, _) = below.dim_in_pixel();
    let n_panels = u32::try_from(panels.len().max(1))?;
    let each = width.saturating_sub(NAMES) / n_panels;
    let mut rest = below;
    for (at, panel) in (0..n_panels).zip(panels) {
        let names = if at == 0 { NAMES } else { 0 };
        let (left, right) = rest.split_horizontally(names + each);
        fill_panel(&left, panel, legend, names)?;
        rest = right;
    }
    Ok(())
}

fn fill_legend(area: &Area<'_>, legend: &Legend) -> Drawn {
    let mut x = 4;
    for (name, color) in legend.values {
        area.draw(&Rectangle::new([(x, 4), (x + 12, 16)], color.filled()))?;
        let style = (FONT, 14).into_font().color(&TEXT);
        area.draw(&Text::new(*name, (x + 18, 3), style))?;
        x += 36 + i32::try_from(name.len())? * 7;
    }
    Ok(())
}

fn fill_panel(area: &Area<'_>, panel: &Panel, legend: &Legend, names: u32) -> Drawn {
    let n_kinds = panel.bars.len() as f64;
    let values = panel.bars.iter().flat_map(|(_, values)| values);
    let longest = values.copied().fold(f64::MIN_POSITIVE, f64::max) * 1.2;
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, (FONT, 16).into_font().color(&TEXT))
        .x_label_area_size(44)
        .y_label_area_size(names)
        .margin_right(18)
        .build_cartesian_2d(0.0..longest, 0.0..n_kinds)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 13).into_font().color(&TEXT))
        .x_labels(5)
        .x_desc(legend.about)
        .x_label_formatter(&|value| (legend.show)(*value))
        .draw()?;
    let n_values = legend.values.len() as f64;
    let thickness = 0.8 / n_values;
    for (at, (name, values)) in panel.bars.iter().enumerate() {
        let top = n_kinds - at as f64 - 0.1;
        for (place, (value, (_, color))) in values.iter().zip(legend.values).enumerate() {
            let y = top - thickness * place as f64;
            let corners = [(0.0, y), (*value, y - thickness * 0.9)];
            chart.draw_series([Rectangle::new(corners, color.filled())])?;
            let style = (FONT, 11).into_font().color(&TEXT);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            let end = EmptyElement::at((*value, y - thickness * 0.45));
            chart.draw_series([end + Text::new((legend.show)(*value), (4, 0), style)])?;
        }
        if names > 0 {
            let style = (FONT, 14).into_font().color(&TEXT);
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            let start = EmptyElement::at((0.0, top - 0.4));
            chart.draw_series([start + Text::new(name.clone(), (-8, 0), style)])?;
        }
    }
    Ok(())
}
