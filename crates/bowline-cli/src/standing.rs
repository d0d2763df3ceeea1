//! Who is signed in where, as people and as programs read it.

use std::fmt;
use std::time::SystemTime;

use bowline::sign_in::SignedIn;
use serde_json::{Value, json};

/// All that `bowline auth` has to say.
#[derive(Debug)]
pub(crate) struct Standings {
    pub(crate) rows: Vec<Standing>,
    /// Where it is kept.
    pub(crate) place: String,
}

/// A caller at a server.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The server's name, or its URL if it has none here.
    pub(crate) server: String,
    pub(crate) url: String,
    /// `None` for the local caller.
    pub(crate) caller: Option<String>,
    /// `None` if nobody signs in there.
    pub(crate) signed_in: Option<Option<SignedIn>>,
}

const HEAD: [&str; 7] = [
    "SERVER",
    "CALLER",
    "SIGNED IN",
    "SINCE",
    "UNTIL",
    "ISSUER",
    "SCOPES",
];

// === impl Standings ===

impl Standings {
    pub(crate) fn to_json(&self) -> Value {
        let servers: Vec<Value> = self.rows.iter().map(Standing::to_json).collect();
        json!({"vault": self.place, "servers": servers})
    }
}

impl fmt::Display for Standings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            writeln!(f, "Nobody is signed in anywhere.")?;
        } else {
            table(
                f,
                &self.rows.iter().map(Standing::cells).collect::<Vec<_>>(),
            )?;
        }
        writeln!(f, "\nKept in {}.", self.place)
    }
}

// === impl Standing ===

impl Standing {
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

/// Until when somebody is signed in.
pub(crate) fn until(signed_in: &SignedIn) -> String {
    let token = match signed_in.until {
        None => return "not said".to_owned(),
        Some(until) => date(until),
    };
    match signed_in.is_renewed {
        true => format!("{token}, then renewed"),
        false => token,
    }
}

pub(crate) fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
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

/// Issuers and scopes are strangers' words, and a terminal obeys some of them.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character.is_control() {
            true => '\u{fffd}',
            false => character,
        })
        .collect()
}
