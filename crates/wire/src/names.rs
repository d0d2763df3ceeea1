//! Names of members as the most lenient readers take them: with escapes, in upper and lower case, up to a NUL.

/// Whether some reader takes this name, without escapes, for the other one, which is ASCII.
#[must_use]
pub fn reads_as(name: &str, wanted: &str) -> bool {
    let name = up_to_nul(name);
    let is_equal = || {
        let folded = name.chars().map(folded);
        folded.eq(wanted.chars().map(|char| char.to_ascii_lowercase()))
    };
    name.eq_ignore_ascii_case(wanted) || (!name.is_ascii() && is_equal())
}

/// A character as readers fold it that ignore case.
fn folded(char: char) -> char {
    match char {
        // The only two characters outside ASCII whose lower case is in ASCII.
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        char => char.to_ascii_lowercase(),
    }
}

/// What readers see of a name that take it for a C string.
#[must_use]
pub fn up_to_nul(name: &str) -> &str {
    name.split('\0').next().unwrap_or_default()
}

/// The text without escapes and in lower case, as the most lenient parser reads names.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        let char = match char {
            '\\' => match rest.next() {
                Some('u') => escaped(&mut rest),
                Some(other) => other,
                None => break,
            },
            char => char,
        };
        plain.push(folded(char));
    }
    plain
}

/// The character of a `\u` escape, from its four digits.
fn escaped(rest: &mut std::str::Chars<'_>) -> char {
    let Some(digits) = rest.as_str().get(..4) else {
        return 'u';
    };
    let Ok(code) = u32::from_str_radix(digits, 16) else {
        return 'u';
    };
    *rest = rest.as_str()[4..].chars();
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_leniently_as_can_be() {
        for name in ["method", "Method", "METHOD", "method\0", "mEthod\0x"] {
            assert!(reads_as(name, "method"), "{name:?}");
        }
        assert!(reads_as("Param\u{17f}\0", "params"), "as Go folds it");
        for name in ["", "methods", "metho", "\0method", "meth\0od"] {
            assert!(!reads_as(name, "method"), "{name:?}");
        }
        for written in [r"\u006Dethod", r"m\ethod", r"method\u0000", "METHOD"] {
            assert!(reads_as(&plain(written), "method"), "{written}");
        }
        for broken in [r"\", r"\u", r"\u00", r"\uzzzz", r"\ud800"] {
            _ = plain(broken);
        }
        assert_eq!(plain("re\u{17f}ource/\u{212a}"), "resource/k");
    }
}
