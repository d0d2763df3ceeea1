//! A client's query beside the operator's: parameters that the operator set are nobody else's, however a server reads
//! their names.

use std::borrow::Cow;

use url::form_urlencoded;

/// The query without the parameters that another one sets.
pub(super) fn left_of(query: &str, set: &str) -> String {
    let set: Vec<_> = set.split('&').flat_map(names).collect();
    let is_set = |part: &str| names(part).iter().any(|name| set.contains(name));
    // Some servers also separate parameters by `;`.
    let is_free = |part: &&str| !part.split(';').any(is_set);
    let left: Vec<_> = query.split('&').filter(is_free).collect();
    left.join("&")
}

/// A name in which `%u0074` stands for a character, as some servers read it (classic ASP.NET, old versions of Jetty).
fn without_unicode_escapes(name: &str) -> Cow<'_, str> {
    let mut left = name;
    let mut out = String::new();
    while let Some((before, after)) = left.split_once('%') {
        let digits = after.strip_prefix(['u', 'U']).and_then(|it| it.get(..4));
        let digits = digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|it| u32::from_str_radix(it, 16).ok());
        out.push_str(before);
        left = match code.and_then(char::from_u32) {
            Some(character) => {
                out.push(character);
                &after[5..]
            }
            None => {
                out.push('%');
                after
            }
        };
    }
    match out.is_empty() {
        true => Cow::Borrowed(name),
        false => Cow::Owned(out + left),
    }
}

/// A parameter's name as the most lenient servers read it: decoded, in lower case, and with the
/// characters replaced that PHP replaces in names. Once without the brackets that make it a list,
/// and once with those replaced, too.
fn names(part: &str) -> [String; 2] {
    let decoded = form_urlencoded::parse(part.as_bytes()).next();
    let name = decoded
        .map(|(name, _)| name.into_owned())
        .unwrap_or_default();
    let name = without_unicode_escapes(&name);
    let name = name.split('\0').next().unwrap_or_default().trim_start();
    let name = name.to_lowercase().replace(['.', ' '], "_");
    let within = name.trim_start_matches(['[', ']']);
    let within = within.split(['[', ']']).next().unwrap_or_default();
    [within.to_owned(), name.replace(['[', ']'], "_")]
}
