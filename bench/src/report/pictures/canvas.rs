//! Draws what all pictures share: the title, the line about the run, the colours and the sizes.

use std::path::PathBuf;

use plotters::{coord::Shift, prelude::*};

use crate::report::raw::Run;

/// One picture.
pub(crate) struct Picture {
    /// The file name in `docs`.
    pub(crate) file: &'static str,
    /// The text for readers who cannot see the picture.
    pub(crate) title: &'static str,
    pub(crate) svg: String,
}

impl Picture {
    /// Returns the path, relative to the root.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("docs").join(self.file)
    }
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

pub(super) const SIZE: (u32, u32) = (860, 430);
/// The size of a picture with four bars for each kind of key.
pub(super) const TALL: (u32, u32) = (860, 680);
pub(super) const FONT: &str = "sans-serif";
pub(super) const TEXT: RGBColor = RGBColor(31, 35, 40);
pub(super) const FAINT: RGBColor = RGBColor(101, 109, 118);
pub(super) const GRID: RGBColor = RGBColor(222, 226, 230);
pub(super) const SUBJECT: RGBColor = RGBColor(9, 105, 218);
pub(super) const REFERENCE: RGBColor = RGBColor(160, 170, 181);
pub(super) const SLOW: RGBColor = RGBColor(191, 99, 0);
pub(super) const AWAY: RGBColor = RGBColor(180, 35, 40);

/// Draws a picture: a title, a line about the run, and below them what `fill` draws.
///
/// The background is drawn as well, because pages may be dark.
pub(super) fn picture(
    run: &Run,
    title: &str,
    fill: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, String> {
    picture_of(SIZE, run, title, fill)
}

/// Draws a picture of another size, in pixels.
pub(super) fn picture_of(
    size: (u32, u32),
    run: &Run,
    title: &str,
    fill: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, String> {
    let mut svg = String::new();
    let about = format!(
        "{} · {}, {} cores · {}",
        run.date(),
        run.machine.cpu,
        run.machine.n_cores,
        run.sources().replace('`', "")
    );
    let all = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = (|| -> Drawn {
        all.fill(&WHITE)?;
        all.draw(&Text::new(
            title,
            (20, 18),
            (FONT, 20).into_font().color(&TEXT),
        ))?;
        all.draw(&Text::new(
            about,
            (20, 44),
            (FONT, 13).into_font().color(&FAINT),
        ))?;
        fill(&all.margin(68, 12, 16, 30))?;
        all.present()?;
        Ok(())
    })();
    drop(all);
    drawn.map_err(|error| format!("{title}: {error}"))?;
    Ok(svg + "\n")
}
