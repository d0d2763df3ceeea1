//! Who is signed in where, as people and as programs read it.

use std::fmt;
use std::time::{Duration, SystemTime};

use bowline::login::GrantSummary;
use bowline_system::printable::{escaped, printable};
use serde_json::{Value, json};

/// What `bowline auth` prints.
#[derive(Debug)]
pub(crate) struct AuthStatus {
    pub(crate) rows: Vec<AuthStatusRow>,
    /// Where the tokens are stored.
    pub(crate) place: String,
}

/// A caller at a server.
#[derive(Debug)]
pub(crate) struct AuthStatusRow {
    /// The server's name, or its URL if it has none here.
    pub(crate) server: String,
    pub(crate) url: String,
    /// `None` for the local caller.
    pub(crate) caller: Option<String>,
    /// `None` if nobody signs in there.
    pub(crate) signed_in: Option<Option<GrantSummary>>,
}

/// The end of the year 9999, in seconds since 1970.
const LAST_SECOND: u64 = 253_402_300_799;

const HEAD: [&str; 7] = [
    "SERVER",
    "CALLER",
    "SIGNED IN",
    "SINCE",
    "UNTIL",
    "ISSUER",
    "SCOPES",
];

// === impl AuthStatus ===

impl AuthStatus {
    pub(crate) fn to_json(&self) -> Value {
        let servers: Vec<Value> = self.rows.iter().map(AuthStatusRow::to_json).collect();
        json!({"vault": self.place, "servers": servers})
    }
}

impl fmt::Display for AuthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            writeln!(f, "Nobody is signed in anywhere.")?;
        } else {
            table(
                f,
                &self
                    .rows
                    .iter()
                    .map(AuthStatusRow::cells)
                    .collect::<Vec<_>>(),
            )?;
        }
        writeln!(f, "\nStored in {}.", self.place)
    }
}

// === impl AuthStatusRow ===

impl AuthStatusRow {
    fn cells(&self) -> [String; 7] {
        let caller = self.caller.as_deref().unwrap_or("-").to_owned();
        let [is_in, since, until, issuer, scopes] = match &self.signed_in {
            None => ["not needed", "", "", "", ""].map(str::to_owned),
            Some(None) => ["no", "", "", "", ""].map(str::to_owned),
            Some(Some(it)) => [
                "yes".to_owned(),
                date(it.since),
                until(it),
                it.issuer.clone(),
                it.scopes.join(" "),
            ],
        };
        [
            self.server.clone(),
            caller,
            is_in,
            since,
            until,
            issuer,
            scopes,
        ]
    }

    fn to_json(&self) -> Value {
        let signed_in = self.signed_in.as_ref().and_then(Option::as_ref);
        json!({
            "server": self.server,
            "url": self.url,
            "caller": self.caller,
            "needs_sign_in": self.signed_in.is_some(),
            "signed_in": signed_in.is_some(),
            "since": signed_in.map(|it| date(it.since)),
            "until": signed_in.and_then(|it| it.until).map(date),
            "is_renewed": signed_in.map(|it| it.is_renewed),
            "issuer": signed_in.map(|it| &it.issuer),
            "scopes": signed_in.map(|it| &it.scopes),
        })
    }
}

/// When a sign-in expires.
pub(crate) fn until(signed_in: &GrantSummary) -> String {
    let token = match signed_in.until {
        None => return "unknown".to_owned(),
        Some(until) => date(until),
    };
    match signed_in.is_renewed {
        true => format!("{token}, then refreshed"),
        false => token,
    }
}

/// A date as RFC 3339 has it, which knows none before the year 1970 here and none after 9999: those are shown as
/// the first and the last.
pub(crate) fn date(time: SystemTime) -> String {
    let (first, last) = (SystemTime::UNIX_EPOCH, Duration::from_secs(LAST_SECOND));
    let time = time.duration_since(first).unwrap_or_default().min(last);
    humantime::format_rfc3339_seconds(first + time).to_string()
}

/// Columns as wide as they need to be; those that say nothing in any row are left out.
fn table(f: &mut fmt::Formatter<'_>, rows: &[[String; 7]]) -> fmt::Result {
    let says = |column: usize| rows.iter().any(|row| !["", "-"].contains(&&*row[column]));
    let columns: Vec<usize> = (0..HEAD.len()).filter(|column| says(*column)).collect();
    let head = HEAD.map(str::to_owned);
    let lines = || std::iter::once(&head).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max();
    for line in lines() {
        let mut text = String::new();
        for column in &columns {
            let width = width(*column).unwrap_or_default();
            text += &format!("{:width$}  ", printable(&line[*column]));
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

/// JSON as text in which nothing of others can steer a terminal.
pub(crate) fn escaped_json(value: &Value) -> String {
    escaped(&format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use bowline_system::printable::is_unprintable;

    use super::*;

    #[test]
    fn json_stays_the_same_json() {
        let value = json!({"issuer": "a\u{202e}b\u{9b}c\u{1b}[2Jd\u{e0041}ü"});
        let text = escaped_json(&value);
        assert!(
            text.chars()
                .all(|character| character == '\n' || !is_unprintable(character)),
            "{text:?}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn any_time_has_a_date() {
        let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let far = at(300_000_000_000).unwrap();
        assert_eq!(date(far), "9999-12-31T23:59:59Z");
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(date(early), "1970-01-01T00:00:00Z");
        assert_eq!(date(at(1_000_000_000).unwrap()), "2001-09-09T01:46:40Z");
    }
}
