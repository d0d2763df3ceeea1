//! What clients can read of a definition. The official SDKs refuse a whole list for one value that is not what the
//! protocol says; in a union that would take the tools of all servers away. So what means the same is written as they
//! read it, a field that they would refuse is left out, and if nobody could use the rest, so is the definition. What is
//! left out is named.
//!
//! The fields are those of revision 2025-11-25. What is demanded of them is what both SDKs accept, which
//! `interop/union/definitions.py` compares with them.

mod changes;
mod pattern;
mod schema;
mod tokens;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use self::tokens::Plain;
use super::list::List;

/// A definition as clients can read it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Readable<'d> {
    pub(super) text: Cow<'d, str>,
    /// The fields that are left out, each with the reason.
    pub(super) without: Vec<(String, String)>,
}

/// A field of the protocol.
struct Field {
    name: &'static str,
    kind: Kind,
    need: Need,
}

/// What becomes of what a field is in if clients would refuse the field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It goes on without the field.
    Extra,
    /// The field may be missing. If it is there it matters.
    Matters,
    Required,
}

enum Kind {
    Text,
    Flag,
    /// A whole number of less than 64 bits.
    Whole,
    /// A number from 0 to 1.
    Share,
    /// A date and time with its offset.
    Moment,
    OneOf(&'static [&'static str]),
    ListOf(&'static Self),
    Object(&'static [Field]),
    AnyObject,
    InputSchema,
    OutputSchema,
}

const fn extra(name: &'static str, kind: Kind) -> Field {
    let need = Need::Extra;
    Field { name, kind, need }
}

const fn matters(name: &'static str, kind: Kind) -> Field {
    let need = Need::Matters;
    Field { name, kind, need }
}

const fn required(name: &'static str, kind: Kind) -> Field {
    let need = Need::Required;
    Field { name, kind, need }
}

const ICONS: Kind = Kind::ListOf(&Kind::Object(&[
    required("src", Kind::Text),
    extra("mimeType", Kind::Text),
    extra("sizes", Kind::ListOf(&Kind::Text)),
    extra("theme", Kind::OneOf(&["light", "dark"])),
]));

const ANNOTATIONS: Kind = Kind::Object(&[
    extra(
        "audience",
        Kind::ListOf(&Kind::OneOf(&["user", "assistant"])),
    ),
    extra("priority", Kind::Share),
    extra("lastModified", Kind::Moment),
]);

const TOOL: &[Field] = &[
    required("name", Kind::Text),
    required("inputSchema", Kind::InputSchema),
    extra("outputSchema", Kind::OutputSchema),
    extra("title", Kind::Text),
    extra("description", Kind::Text),
    extra("icons", ICONS),
    extra(
        "annotations",
        Kind::Object(&[
            extra("title", Kind::Text),
            extra("readOnlyHint", Kind::Flag),
            extra("destructiveHint", Kind::Flag),
            extra("idempotentHint", Kind::Flag),
            extra("openWorldHint", Kind::Flag),
        ]),
    ),
    extra(
        "execution",
        Kind::Object(&[extra(
            "taskSupport",
            Kind::OneOf(&["required", "optional", "forbidden"]),
        )]),
    ),
    extra("_meta", Kind::AnyObject),
];

const PROMPT: &[Field] = &[
    required("name", Kind::Text),
    matters(
        "arguments",
        Kind::ListOf(&Kind::Object(&[
            required("name", Kind::Text),
            extra("title", Kind::Text),
            extra("description", Kind::Text),
            matters("required", Kind::Flag),
        ])),
    ),
    extra("title", Kind::Text),
    extra("description", Kind::Text),
    extra("icons", ICONS),
    extra("_meta", Kind::AnyObject),
];

const RESOURCE: &[Field] = &[
    required("uri", Kind::Text),
    required("name", Kind::Text),
    extra("title", Kind::Text),
    extra("description", Kind::Text),
    extra("mimeType", Kind::Text),
    extra("size", Kind::Whole),
    extra("icons", ICONS),
    extra("annotations", ANNOTATIONS),
    extra("_meta", Kind::AnyObject),
];

const TEMPLATE: &[Field] = &[
    required("uriTemplate", Kind::Text),
    required("name", Kind::Text),
    extra("title", Kind::Text),
    extra("description", Kind::Text),
    extra("mimeType", Kind::Text),
    extra("icons", ICONS),
    extra("annotations", ANNOTATIONS),
    extra("_meta", Kind::AnyObject),
];

/// The longest number. Clients in Python read none of more than 4300 digits.
const MAX_NUMBER: usize = 4000;

/// A definition as clients can read it, or why they cannot.
pub(super) fn readable(definition: &str, list: List) -> Result<Readable<'_>, String> {
    if has_long_number(definition) {
        return Err(format!("it has a number of more than {MAX_NUMBER} digits"));
    }
    if serde_json::from_str::<Plain>(definition).is_err() {
        return Err("it cannot be read".to_owned());
    }
    // Also what is too deep, too large a number, or half a character.
    let Ok(Value::Object(mut members)) = serde_json::from_str(definition) else {
        return Err("it is not an object that can be read".to_owned());
    };
    let fields = match list {
        List::Tools => TOOL,
        List::Prompts => PROMPT,
        List::Resources => RESOURCE,
        List::Templates => TEMPLATE,
    };
    let mut fitting = Fitting::default();
    fitting.object(&mut members, fields, "")?;
    let text = match fitting.is_changed {
        true => changes::written(definition, &Value::Object(members)).into(),
        false => definition.into(),
    };
    let without = fitting.without;
    Ok(Readable { text, without })
}

/// Whether a number in a JSON text is too long. Those in texts do not count.
fn has_long_number(json: &str) -> bool {
    let (mut is_in_text, mut is_escaped, mut length) = (false, false, 0);
    json.bytes().any(|byte| {
        length = match byte {
            b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' if !is_in_text => length + 1,
            _ => 0,
        };
        is_in_text ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        length > MAX_NUMBER
    })
}

/// Makes a definition what clients can read.
#[derive(Default)]
struct Fitting {
    is_changed: bool,
    without: Vec<(String, String)>,
}

impl Fitting {
    /// The fields of an object at this place.
    fn object(
        &mut self,
        members: &mut Map<String, Value>,
        fields: &[Field],
        at: &str,
    ) -> Result<(), String> {
        for field in fields {
            let place = match at {
                "" => field.name.to_owned(),
                at => format!("{at}.{}", field.name),
            };
            match self.field(members, field, &place) {
                Err(why) if field.need == Need::Extra => {
                    members.remove(field.name);
                    self.is_changed = true;
                    // Once for all that are in one list.
                    if self.without.iter().all(|(known, _)| *known != place) {
                        self.without.push((place, why));
                    }
                }
                fitted => fitted?,
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        members: &mut Map<String, Value>,
        field: &Field,
        place: &str,
    ) -> Result<(), String> {
        // Some clients refuse a `null`, and for the others it is as good as none.
        if members.get(field.name).is_some_and(Value::is_null) {
            members.remove(field.name);
            self.is_changed = true;
        }
        if let Some(value) = members.get_mut(field.name) {
            return self.value(value, &field.kind, place);
        }
        if let Kind::InputSchema = field.kind {
            members.insert(field.name.to_owned(), json!({"type": "object"}));
            self.is_changed = true;
            return Ok(());
        }
        if field.need == Need::Required {
            return Err(format!("`{place}` is missing"));
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, kind: &Kind, at: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("`{at}` is no {what}"));
        let is_object = matches!(kind, Kind::Object(_) | Kind::AnyObject);
        if is_object && *value == json!([]) {
            // As PHP writes an empty one.
            *value = json!({});
            self.is_changed = true;
        }
        match (kind, value) {
            (Kind::Text, Value::String(_)) | (Kind::Flag, Value::Bool(_)) => Ok(()),
            (Kind::Text, _) => wrong("text"),
            (Kind::Flag, _) => wrong("`true` or `false`"),
            (Kind::Whole, value) => match value.as_f64().is_some_and(is_whole) {
                true => Ok(()),
                false => wrong("whole number"),
            },
            (Kind::Share, value) => match value.as_f64() {
                Some(0.0..=1.0) => Ok(()),
                _ => wrong("number from 0 to 1"),
            },
            (Kind::Moment, value) => match value.as_str().is_some_and(is_moment) {
                true => Ok(()),
                false => wrong("date and time with an offset"),
            },
            (Kind::OneOf(known), value) => match value.as_str() {
                Some(one) if known.contains(&one) => Ok(()),
                _ => wrong(&format!("`{}`", known.join("` or `"))),
            },
            (Kind::ListOf(kind), Value::Array(list)) => {
                let mut list = list.iter_mut();
                list.try_for_each(|one| self.value(one, kind, at))
            }
            (Kind::ListOf(_), _) => wrong("list"),
            (Kind::Object(fields), Value::Object(members)) => self.object(members, fields, at),
            (Kind::AnyObject, Value::Object(_)) => Ok(()),
            (Kind::Object(_) | Kind::AnyObject, _) => wrong("object"),
            (Kind::InputSchema | Kind::OutputSchema, Value::Object(schema)) => {
                let unfit = |why| format!("`{at}`: {why}");
                self.is_changed |= schema::fit(schema).map_err(unfit)?;
                match kind {
                    Kind::OutputSchema => {
                        self.is_changed |= schema::cut(schema);
                        schema::compiles(schema.clone()).map_err(unfit)
                    }
                    _ => Ok(()),
                }
            }
            // All that it says is that there are arguments.
            (Kind::InputSchema, value) => {
                *value = json!({"type": "object"});
                self.is_changed = true;
                Ok(())
            }
            (Kind::OutputSchema, _) => wrong("schema of an object"),
        }
    }
}

fn is_whole(number: f64) -> bool {
    const END: f64 = 9_223_372_036_854_775_808.0;
    number.fract() == 0.0 && number.abs() < END
}

/// Whether a text is a date and time of RFC 3339, as narrowly as the narrowest client reads it.
fn is_moment(text: &str) -> bool {
    let moment = text.strip_suffix('Z').or_else(|| {
        let (moment, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
        let (hours, minutes) = offset.strip_prefix(['+', '-'])?.split_once(':')?;
        let is_below = |part: &str, end: u32| {
            part.len() == 2
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.parse::<u32>().is_ok_and(|number| number < end)
        };
        (is_below(hours, 24) && is_below(minutes, 60)).then_some(moment)
    });
    moment.is_some_and(|moment| {
        let has_leap_second = moment.get(17..19) == Some("60");
        !has_leap_second && humantime::parse_rfc3339(&format!("{moment}Z")).is_ok()
    })
}

#[cfg(test)]
mod tests;
