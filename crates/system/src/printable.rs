//! Text of others, before it reaches a terminal or a log: what a terminal obeys, and what reverses, hides or breaks
//! the text around it. The one place where that is decided.

use std::fmt::Write as _;

/// Whether a character is none that is seen: control, format and separator characters (Unicode's Cc, Cf, Zl and Zp),
/// and tags.
#[must_use]
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
        )
        || matches!(
            character,
            '\u{180e}' | '\u{feff}' | '\u{110bd}' | '\u{110cd}'
        )
        || matches!(character, '\u{600}'..='\u{605}' | '\u{890}'..='\u{891}')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(character, '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(character, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Text in which these characters are replaced.
#[must_use]
pub fn printable(text: &str) -> String {
    let shown = |character| match is_unprintable(character) {
        true => '\u{fffd}',
        false => character,
    };
    text.chars().map(shown).collect()
}

/// The same, line by line.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// The same for a whole screen: line breaks, tabs and the program's own colours (SGR sequences) stay.
#[must_use]
pub fn printable_screen(text: &str) -> String {
    let mut screen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = colour_length(rest).unwrap_or(character.len_utf8());
        let (next, after) = rest.split_at(length);
        match length == character.len_utf8() && is_unprintable(character) {
            true if !matches!(character, '\n' | '\t') => screen.push('\u{fffd}'),
            _ => screen.push_str(next),
        }
        rest = after;
    }
    screen
}

/// How long the SGR sequence is that a text begins with.
fn colour_length(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|it: char| !it.is_ascii_digit() && it != ';')?;
    let is_colour = numbers[end..].starts_with('m');
    is_colour.then(|| text.len() - numbers.len() + end + 1)
}

/// Text in which these characters but line breaks are escaped as in JSON. JSON stays the same JSON.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || !is_unprintable(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            write!(escaped, "\\u{unit:04x}").ok();
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C0, C1, a carriage return, an override, a separator, an invisible one and a tag.
    const UNTRUSTED: &str = "a\u{202e}b\u{2028}c\u{9b}d\u{1b}[2Je\u{e0041}f\rg\u{200b}ü";

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(
            printable(UNTRUSTED),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}[2Je\u{fffd}f\u{fffd}g\u{fffd}ü"
        );
        assert_eq!(printable_lines("a\r\nb\n"), "a\u{fffd}\nb\n");
        assert_eq!(printable_screen(UNTRUSTED), printable(UNTRUSTED));
        let coloured = "\u{1b}[1m\u{1b}[91merror\u{1b}[0m:\ta\nb";
        assert_eq!(printable_screen(coloured), coloured);
        let untrusted = "\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[";
        assert_eq!(
            printable_screen(untrusted),
            "\u{fffd}[2J\u{fffd}]0;x\u{fffd}\u{fffd}["
        );
        assert_eq!(
            escaped(UNTRUSTED),
            r"a\u202eb\u2028c\u009bd\u001b[2Je\udb40\udc41f\u000dg\u200bü"
        );
        assert_eq!(escaped("{\n}"), "{\n}");
    }
}
