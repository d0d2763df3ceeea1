//! How a flow ends when the authorization server refuses the sign-in, and which of its words are shown.

use bowline_system::printable::is_unprintable;

use crate::oauth::flow::FlowOutcome;

/// The most characters of an error's description that are shown.
const MAX_DESCRIPTION: usize = 300;

/// The outcome of a flow that the authorization server refused.
pub(super) fn refusal(error: &str, description: Option<&str>) -> FlowOutcome {
    let code = code_of(error);
    let said = match description.and_then(words_of) {
        Some(words) => format!("{code}: \"{words}\""),
        None => code.to_owned(),
    };
    match error {
        "access_denied" => FlowOutcome::Declined { said: Some(said) },
        _ => FlowOutcome::Failed(format!("the authorization server answered {said}")),
    }
}

/// The error code, if it looks like one: anybody could have written it.
pub(super) fn code_of(error: &str) -> &str {
    let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    match error.len() <= 40 && error.bytes().all(is_code) {
        true => error,
        false => "an error",
    }
}

/// An error's description, on one line and without quotation marks but single apostrophes, because it is shown in
/// such marks: anybody could have written it. Where it is shown, it has to be escaped.
fn words_of(description: &str) -> Option<String> {
    let printed = description.chars().map(|character| match character {
        mark if is_quotation_mark(mark) => '\'',
        control if is_unprintable(control) => ' ',
        other => other,
    });
    let mut printed: Vec<_> = printed.collect();
    // Two of them look like one that is double.
    printed.dedup_by(|one, other| (*one, *other) == ('\'', '\''));
    let printed: String = printed.into_iter().collect();
    let line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut words: String = line.chars().take(MAX_DESCRIPTION).collect();
    if words.len() < line.len() {
        words.push('…');
    }
    (!words.is_empty()).then_some(words)
}

/// Quotation marks of the scripts that have them, and characters that are known to look like them.
fn is_quotation_mark(character: char) -> bool {
    matches!(
        character,
        '"' | '\'' | '`' | '´' | '¨' | '«' | '»' | '\u{2b9}'..='\u{2bf}' | '\u{2dd}' | '\u{2ee}'
            | '\u{2f4}' | '\u{2f6}' | '\u{30b}' | '\u{30f}' | '\u{5f3}' | '\u{5f4}' | '\u{2018}'..='\u{201f}'
            | '\u{2032}'..='\u{2037}' | '\u{2039}' | '\u{203a}' | '\u{2057}' | '\u{275b}'..='\u{2760}'
            | '\u{276e}' | '\u{276f}' | '\u{27e8}'..='\u{27eb}' | '\u{2e42}' | '\u{3003}' | '\u{3008}'..='\u{300f}'
            | '\u{1425}'
            | '\u{301d}'..='\u{301f}' | '\u{fe41}'..='\u{fe44}' | '\u{ff02}' | '\u{ff07}'
            | '\u{ff40}' | '\u{ff62}' | '\u{ff63}' | '\u{1f676}'..='\u{1f678}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_error_is_one_line_that_ends_nothing() {
        assert_eq!(words_of(" \r\n\t"), None);
        assert_eq!(words_of("Ask\r\nthe  admin.").unwrap(), "Ask the admin.");
        assert_eq!(
            words_of("no\" Now run \u{202e}this\u{e0041}").unwrap(),
            "no' Now run this"
        );
        for marks in [
            "“no”",
            "„no‟",
            "«no»",
            "＂no＂",
            "「no」",
            "‘‘no’’",
            "\u{275d}no\u{275e}",
            "″no″",
            "''no''",
            "《no》",
            "\u{1425}no\u{1425}",
        ] {
            assert_eq!(words_of(marks).unwrap(), "'no'", "{marks}");
        }
        assert_eq!(words_of("Zugriff für Übung").unwrap(), "Zugriff für Übung");
        let long = words_of(&"ä".repeat(1000)).unwrap();
        assert_eq!(long.chars().count(), MAX_DESCRIPTION + 1);
    }

    #[test]
    fn a_refusal_says_what_the_authorization_server_did() {
        let said = |error, description| refusal(error, description);
        assert_eq!(
            said("access_denied", Some("Ask.")),
            FlowOutcome::Declined {
                said: Some("access_denied: \"Ask.\"".to_owned())
            }
        );
        let said_nothing_else = FlowOutcome::Declined {
            said: Some("access_denied".to_owned()),
        };
        assert_eq!(said("access_denied", None), said_nothing_else);
        let why = "the authorization server answered server_error: \"Down.\"";
        assert_eq!(
            said("server_error", Some("Down.")),
            FlowOutcome::Failed(why.to_owned())
        );
        let why = "the authorization server answered an error";
        assert_eq!(said("<b>", None), FlowOutcome::Failed(why.to_owned()));
    }
}
