//! A line of the log for people: when, how grave, where, what, and the facts.
//!
//! It looks like tracing-subscriber's compact lines. Opening a session is one line, and the general
//! formatter took a tenth of the time that opening takes.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use bowline_system::printable::is_unprintable;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes lines, with colours or without.
pub(super) struct Line {
    pub(super) colour: bool,
}

/// Writes the message, which is ours and may have several lines, and facts, which may be anybody's, as `name=value`.
struct Facts<'a> {
    line: Clean<'a>,
}

/// Text without anything that could steer a terminal or, unless it may have several lines, end the line.
struct Clean<'a> {
    text: &'a mut String,
    has_lines: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let (level, code) = match *metadata.level() {
            Level::ERROR => ("ERROR", "31"),
            Level::WARN => (" WARN", "33"),
            Level::INFO => (" INFO", "32"),
            Level::DEBUG => ("DEBUG", "34"),
            Level::TRACE => ("TRACE", "35"),
        };
        let mut line = String::with_capacity(256);
        #[expect(clippy::disallowed_methods, reason = "a log's date is the real one")]
        let now = humantime::format_rfc3339_micros(SystemTime::now());
        match self.colour {
            true => write!(
                line,
                "\x1b[2m{now}\x1b[0m \x1b[{code}m{level}\x1b[0m \x1b[2m{}:\x1b[0m",
                metadata.target()
            )?,
            false => {
                write!(line, "{now} ")?;
                line.push_str(level);
                line.push(' ');
                line.push_str(metadata.target());
                line.push(':');
            }
        }
        let clean = Clean {
            text: &mut line,
            has_lines: false,
        };
        event.record(&mut Facts { line: clean });
        line.push('\n');
        writer.write_str(&line)
    }
}

impl Visit for Facts<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Writing to a String cannot fail.
        match field.name() {
            "message" => write!(self.line.with_lines(), " {value}").ok(),
            name => write!(self.line, " {name}={value:?}").ok(),
        };
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        write!(self.line, " {}={value}", field.name()).ok();
        let mut source = value.source();
        while let Some(cause) = source {
            write!(self.line, ": {cause}").ok();
            source = cause.source();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => write!(self.line.with_lines(), " {value:?}").ok(),
            name => write!(self.line, " {name}={value:?}").ok(),
        };
    }
}

impl Clean<'_> {
    fn with_lines(&mut self) -> Clean<'_> {
        Clean {
            text: self.text,
            has_lines: true,
        }
    }
}

impl fmt::Write for Clean<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            self.text.push_str(text);
            return Ok(());
        }
        for character in text.chars() {
            match is_unprintable(character) && !(self.has_lines && character == '\n') {
                true => self.text.extend(character.escape_default()),
                false => self.text.push(character),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(colour: bool) -> String {
        let written = Written::default();
        let to = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Line { colour })
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let cause = io::Error::other("no\nluck");
            let error: &dyn std::error::Error = &cause;
            let said = "\u{202e}\u{9b}\u{1b}\r";
            tracing::warn!(server = %"s", text = "a \"b\"\nc", said = %said, number = 7, error, "it {}{}", "broke", said);
        });
        let bytes = written.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_is_one_line_with_its_facts() {
        let line = logged(false);
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
        assert_eq!(
            rest,
            " WARN bowline::logs::line::tests: it broke\\u{202e}\\u{9b}\\u{1b}\\r server=s text=\"a \\\"b\\\"\\nc\" said=\\u{202e}\\u{9b}\\u{1b}\\r number=7 error=no\\nluck\n"
        );
    }

    #[test]
    fn colours_only_where_they_are_seen() {
        assert!(!logged(false).contains('\x1b'));
        assert!(logged(true).contains("\x1b[33m WARN\x1b[0m"));
    }
}
