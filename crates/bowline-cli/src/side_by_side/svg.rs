//! The rows as a picture that moves: each appears after the one before. Where pictures do not move, all are there.

use std::fmt::Write as _;

use super::screen::{COLUMN, Cell, Mood, Row};

/// Pixels: of a character, of a line, and around everything.
const CHARACTER: f64 = 8.4;
const LINE: usize = 22;
const MARGIN: usize = 20;

/// Seconds between rows.
const PAUSE: f64 = 0.6;

const STYLE: &str = "\
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre; fill: #d0d7de }
.head { font-weight: bold; fill: #ffffff }
.event { font-weight: bold; fill: #e3b341 }
.good { fill: #56d364 }
.bad { fill: #ff7b72 }
g { animation: appear 0.2s backwards }
@keyframes appear { from { opacity: 0 } to { opacity: 1 } }
";

/// Draws the rows.
pub(super) fn draw(rows: &[Row]) -> String {
    let width = (2 * COLUMN + 4) as f64 * CHARACTER + 2.0 * MARGIN as f64;
    let height = rows.len() * LINE + 2 * MARGIN;
    let mut svg = String::new();
    // Writing to a String cannot fail.
    write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" width=\"{width:.0}\" \
         height=\"{height}\" role=\"img\">\n<title>{TITLE}</title>\n<style>\n{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    )
    .ok();
    for (number, row) in rows.iter().enumerate() {
        let y = MARGIN + number * LINE + LINE / 2 + 5;
        let delay = number as f64 * PAUSE;
        let texts: String = parts(row)
            .iter()
            .map(|(column, class, text)| {
                let x = MARGIN as f64 + *column as f64 * CHARACTER;
                format!(
                    "<text x=\"{x:.0}\" y=\"{y}\" class=\"{class}\">{}</text>",
                    escape(text)
                )
            })
            .collect();
        if !texts.is_empty() {
            writeln!(svg, "<g style=\"animation-delay: {delay:.1}s\">{texts}</g>").ok();
        }
    }
    svg.push_str("</svg>\n");
    svg
}

const TITLE: &str =
    "A client that counts through Bowline, and one through a plain proxy, while things break";

/// The column, the class and the text of each part of a row.
fn parts(row: &Row) -> Vec<(usize, &'static str, &str)> {
    let right = 2 + COLUMN + 2;
    let class = |cell: &Cell| match cell.mood {
        Mood::Good => "good",
        Mood::Bad => "bad",
    };
    match row {
        Row::Heads([one, two]) => vec![(2, "head", one), (right, "head", two)],
        Row::Event(text) => vec![(0, "event", text)],
        Row::Cells([one, two]) => {
            vec![(2, class(one), &one.text), (right, class(two), &two.text)]
        }
        Row::Empty => Vec::new(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_there_and_none_is_markup() {
        let cell = |text: &str, mood| Cell {
            text: text.to_owned(),
            mood,
        };
        let rows = [
            Row::Heads(["left", "right"]),
            Row::Event("kill -9"),
            Row::Empty,
            Row::Cells([cell("1", Mood::Good), cell("404: <b> & co", Mood::Bad)]),
        ];
        let svg = draw(&rows);
        for part in [">left<", ">right<", ">kill -9<", "class=\"good\">1<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(
            svg.contains("class=\"bad\">404: &lt;b&gt; &amp; co</text>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<g ").count(), 3, "{svg}");
    }
}
