//! Whose a resource is: by the lists of the servers, because a URI says it to nobody else.
//!
//! A server claims a URI that one of its templates fits, or that it lists among others of the same scheme and authority.
//! What two servers claim is read at none of them: each could answer for the other. A server that has others of the
//! same scheme and authority is asked before one that merely lists this one; and what nobody claims may be anybody's.

use std::sync::Arc;

use super::listing::Listing;

/// The longest URI that is compared with templates, and how many of a server's templates it is compared with.
const MAX_URI: usize = 2048;
const MAX_TEMPLATES: usize = 1000;
/// How many variables a template has at most that is compared.
const MAX_VARIABLES: usize = 16;

/// What a server's lists say of a URI, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// It lists this one, and none like it.
    Listed,
    /// It has others of the same scheme and authority.
    Origin,
    /// A template of it fits, or it lists this one among others of the same scheme and authority.
    Own,
}

impl Claim {
    /// What these lists, as far as they are known, say of this URI.
    pub(super) fn of(
        uri: &str,
        resources: Option<&Arc<Listing>>,
        templates: Option<&Arc<Listing>>,
    ) -> Option<Self> {
        let resources = resources.map_or(&[][..], |listing| &listing.items);
        let templates = templates.map_or(&[][..], |listing| &listing.items);
        let tried = templates.iter().take(MAX_TEMPLATES);
        if uri.len() <= MAX_URI && tried.into_iter().any(|it| fits(&it.key, uri)) {
            return Some(Self::Own);
        }
        let is_listed = resources.iter().any(|item| &*item.key == uri);
        let has_like_it = origin(uri).is_some_and(|(scheme, authority)| {
            let is_like_it = |key: &str| {
                let own = origin(key).filter(|_| key != uri);
                own.is_some_and(|own| own.0.eq_ignore_ascii_case(scheme) && own.1 == authority)
            };
            let mut all = resources.iter().chain(templates);
            all.any(|item| is_like_it(&item.key))
        });
        match (is_listed, has_like_it) {
            (true, true) => Some(Self::Own),
            (true, false) => Some(Self::Listed),
            (false, true) => Some(Self::Origin),
            (false, false) => None,
        }
    }
}

/// The scheme and the authority of a URI that has both. Those of a template must not be variable.
fn origin(uri: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let is_fixed = !scheme.contains('{') && !authority.contains('{');
    (is_fixed && !authority.is_empty()).then_some((scheme, authority))
}

/// Whether a URI template (RFC 6570) can become this URI. A template whose scheme is variable fits none.
fn fits(template: &str, uri: &str) -> bool {
    let Some((scheme, _)) = template.split_once(':') else {
        return false;
    };
    if scheme.contains('{') || !uri.starts_with(template.split('{').next().unwrap_or_default()) {
        return false;
    }
    // The places in the URI up to which the template may have got.
    let mut places = vec![0];
    let mut rest = template;
    for _ in 0..=MAX_VARIABLES {
        let literal = rest.split('{').next().unwrap_or_default();
        places.retain_mut(|place| {
            let is_there = uri.get(*place..).is_some_and(|at| at.starts_with(literal));
            *place += literal.len();
            is_there
        });
        rest = &rest[literal.len()..];
        if rest.is_empty() {
            return places.contains(&uri.len());
        }
        let Some((expression, behind)) = rest[1..].split_once('}') else {
            return false;
        };
        places = after(expression, &places, uri);
        rest = behind;
    }
    false
}

/// Where an expression may end that begins at one of these places, which are in order.
fn after(expression: &str, places: &[usize], uri: &str) -> Vec<usize> {
    // Without an operator, a variable has no reserved character in it, and is not empty. With one it may be left out.
    let has_operator = expression.starts_with(|first: char| "+#./;?&".contains(first));
    let mut begins = places.iter().copied().peekable();
    let (mut is_within, mut ends) = (false, Vec::new());
    for (at, next) in uri
        .char_indices()
        .map(|(at, next)| (at, Some(next)))
        .chain([(uri.len(), None)])
    {
        let begins_here = begins.next_if_eq(&at).is_some();
        if is_within || (begins_here && has_operator) {
            ends.push(at);
        }
        let may_go_on = has_operator || next.is_some_and(|next| !"/?#".contains(next));
        is_within = (is_within || begins_here) && may_go_on;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::super::listing::Item;
    use super::*;

    fn listing(keys: &[&str]) -> Arc<Listing> {
        let items = keys.iter().map(|key| Item {
            raw: "{}".into(),
            key: (*key).into(),
        });
        Arc::new(Listing {
            items: items.collect(),
            ..Listing::default()
        })
    }

    #[test]
    fn templates_fit_what_they_can_become() {
        for (template, uri) in [
            ("bank://accounts/{id}", "bank://accounts/1"),
            ("bank://accounts/{id}/notes", "bank://accounts/1/notes"),
            (
                "repo://{owner}/{name}/contents{/path*}",
                "repo://a/b/contents/x/y",
            ),
            (
                "repo://{owner}/{name}/contents{/path*}",
                "repo://a/b/contents",
            ),
            ("file:///{+path}", "file:///a/b/c.txt"),
            ("x://s{?q,lang}", "x://s?q=1&lang=en"),
            ("x://s{?q,lang}", "x://s"),
            ("x:{a}-{b}", "x:1-2-3"),
            ("x:ä{a}", "x:äö"),
            ("x:fixed", "x:fixed"),
        ] {
            assert!(fits(template, uri), "{template} {uri}");
        }
        for (template, uri) in [
            ("bank://accounts/{id}", "bank://accounts/"),
            ("bank://accounts/{id}", "bank://accounts/1/notes"),
            ("bank://accounts/{id}", "vault://accounts/1"),
            ("{+any}", "bank://accounts/1"),
            ("{scheme}://accounts/{id}", "bank://accounts/1"),
            ("x:{a", "x:1"),
            ("x:{a}y", "x:1"),
            ("x:fixed", "x:fixed/1"),
        ] {
            assert!(!fits(template, uri), "{template} {uri}");
        }
        let hostile = format!("x:{}", "{+a}a".repeat(MAX_VARIABLES));
        assert!(!fits(
            &hostile,
            &format!("x:{}", "a".repeat(MAX_URI - 3) + "b")
        ));
    }

    #[test]
    fn claims_are_by_templates_then_by_scheme_and_authority_then_by_listing() {
        let of = |uri, resources: &[&str], templates: &[&str]| {
            Claim::of(uri, Some(&listing(resources)), Some(&listing(templates)))
        };
        let uri = "bank://accounts/3";
        assert_eq!(of(uri, &[], &["bank://accounts/{id}"]), Some(Claim::Own));
        assert_eq!(of(uri, &["bank://accounts/1", uri], &[]), Some(Claim::Own));
        assert_eq!(of(uri, &["Bank://accounts/1"], &[]), Some(Claim::Origin));
        assert_eq!(
            of(uri, &[], &["bank://accounts/{id}/x"]),
            Some(Claim::Origin)
        );
        assert_eq!(of(uri, &[uri, "bank://other/1"], &[]), Some(Claim::Listed));
        assert_eq!(of(uri, &["bank://other/1"], &["{+any}"]), None);
        // Without an authority, a scheme says nothing: many servers have files.
        assert_eq!(of("file:///b", &["file:///a"], &[]), None);
        assert_eq!(of("x:b", &["x:a"], &[]), None);
        assert_eq!(Claim::of(uri, None, None), None);
    }
}
