//! What drawings are made of.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, FontStyle, IntoTextStyle, RGBColor};

pub(super) const INK: RGBColor = RGBColor(30, 30, 30);
pub(super) const GREY: RGBColor = RGBColor(105, 105, 105);
pub(super) const PALE: RGBColor = RGBColor(226, 226, 226);
pub(super) const REACHED: RGBColor = RGBColor(0, 130, 60);
pub(super) const MISSED: RGBColor = RGBColor(200, 20, 20);

/// Ours.
const OURS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(60, 150, 230),
    RGBColor(0, 140, 140),
    RGBColor(90, 80, 200),
    RGBColor(120, 190, 200),
    RGBColor(20, 50, 110),
];
/// Limits: what no stack is in.
const LIMITS: [RGBColor; 4] = [
    RGBColor(120, 120, 120),
    RGBColor(165, 165, 165),
    RGBColor(85, 85, 85),
    RGBColor(195, 195, 195),
];
/// Others'.
const OTHERS: [RGBColor; 6] = [
    RGBColor(230, 130, 20),
    RGBColor(240, 185, 60),
    RGBColor(190, 70, 60),
    RGBColor(150, 90, 150),
    RGBColor(140, 105, 50),
    RGBColor(220, 120, 160),
];

/// The colour of each system: ours, limits and others' in families of their own.
pub(super) fn colours(systems: &[&'static str]) -> Vec<RGBColor> {
    let mut used = [0; 3];
    let mut colours = Vec::new();
    for system in systems {
        let (family, list): (usize, &[RGBColor]) = match system {
            s if s.starts_with("xk") => (0, &OURS),
            s if s.starts_with("bare") => (1, &LIMITS),
            _ => (2, &OTHERS),
        };
        colours.push(list[used[family] % list.len()]);
        used[family] += 1;
    }
    colours
}

/// Where a text lies from its point.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Left,
    Middle,
    Right,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Something to draw on; it keeps the first error for the end.
pub(super) struct Paper<'a, 'b> {
    area: &'a Area<'b>,
    error: Option<String>,
}

impl<'a, 'b> Paper<'a, 'b> {
    pub(super) fn new(area: &'a Area<'b>) -> Self {
        Self { area, error: None }
    }

    pub(super) fn finish(self) -> Result<(), String> {
        self.error.map_or(Ok(()), Err)
    }

    fn draw<E>(&mut self, element: &E)
    where
        for<'e> &'e E: PointCollection<'e, (i32, i32)>,
        E: Drawable<SVGBackend<'b>>,
    {
        if let Err(error) = self.area.draw(element) {
            self.error.get_or_insert(error.to_string());
        }
    }

    /// A text whose point is the middle of its height.
    pub(super) fn text(
        &mut self,
        text: &str,
        at: (i32, i32),
        size: u32,
        colour: &RGBColor,
        place: Place,
    ) {
        let across = match place {
            Place::Left => HPos::Left,
            Place::Middle => HPos::Center,
            Place::Right => HPos::Right,
        };
        let style = (FontFamily::SansSerif, f64::from(size), FontStyle::Normal)
            .into_text_style(self.area)
            .color(colour)
            .pos(Pos::new(across, VPos::Center));
        self.draw(&Text::new(text.to_owned(), at, style));
    }

    pub(super) fn bar(&mut self, from: (i32, i32), to: (i32, i32), colour: &RGBColor) {
        self.draw(&Rectangle::new([from, to], colour.filled()));
    }

    pub(super) fn line(&mut self, points: Vec<(i32, i32)>, colour: &RGBColor, width: u32) {
        self.draw(&PathElement::new(points, colour.stroke_width(width)));
    }

    pub(super) fn dot(&mut self, at: (i32, i32), radius: i32, colour: &RGBColor) {
        self.draw(&Circle::new(at, radius, colour.filled()));
    }

    /// Names the systems with their colours, from left to right and then on the next line.
    pub(super) fn legend(
        &mut self,
        systems: &[&'static str],
        colours: &[RGBColor],
        top: i32,
        width: i32,
    ) {
        let (mut x, mut y) = (10, top + 8);
        for (system, colour) in systems.iter().zip(colours) {
            let step = legend_step(system);
            if x + step > width {
                (x, y) = (10, y + LEGEND_LINE);
            }
            self.bar((x, y - 5), (x + 10, y + 5), colour);
            self.text(system, (x + 15, y), 12, &INK, Place::Left);
            x += step;
        }
    }
}

/// Height of a line of the legend, in pixels.
const LEGEND_LINE: i32 = 18;

/// About as wide as a text of this size is, in pixels.
pub(super) fn text_width(text: &str, size: i32) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(0) * size * 11 / 20
}

fn legend_step(system: &str) -> i32 {
    text_width(system, 12) + 34
}

/// How high the legend is, in pixels.
pub(super) fn legend_height(systems: &[&'static str], width: i32) -> i32 {
    let (mut x, mut lines) = (10, 1);
    for system in systems {
        let step = legend_step(system);
        if x + step > width {
            (x, lines) = (10, lines + 1);
        }
        x += step;
    }
    lines * LEGEND_LINE + 6
}

/// What is different among items, in the order of its first appearance.
pub(super) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    list
}
