//! A Markdown page with generated parts.

/// Pages are text; this is what is done with one.
pub(crate) struct Page;

impl Page {
    /// The page with its generated parts replaced. Every part must have its marks, and the other way round.
    pub(crate) fn filled(page: &str, parts: Vec<(&str, String)>) -> String {
        let mut rest = page;
        let mut filled = String::new();
        let mut parts = parts;
        while let Some((before, after)) = rest.split_once("<!-- generated: ") {
            let (name, after) = after.split_once(" -->\n").unwrap();
            let (_, after) = after
                .split_once("<!-- end -->")
                .unwrap_or_else(|| panic!("part `{name}` has no end"));
            let at = parts.iter().position(|(part, _)| *part == name);
            let at = at.unwrap_or_else(|| panic!("nothing generates the part `{name}`"));
            let (_, text) = parts.swap_remove(at);
            filled.push_str(&format!(
                "{before}<!-- generated: {name} -->\n{text}<!-- end -->"
            ));
            rest = after;
        }
        if let Some((name, _)) = parts.first() {
            panic!("the page has no part `{name}`");
        }
        filled + rest
    }
}

/// One row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> String {
    let cells = cells.map(|cell| cell.replace('\n', " ").replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table.
pub(crate) fn head<const N: usize>(names: [&str; N]) -> String {
    row(names) + "|" + &"---|".repeat(N) + "\n"
}
