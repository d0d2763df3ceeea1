//! Whose a resource is: by the lists of the servers, because a URI says it to nobody else.
//!
//! A server claims a URI that one of its templates fits, or that it lists among others of the same scheme and authority.
//! What two servers claim is read at none of them: each could answer for the other. A server that has others of the
//! same scheme and authority is asked before one that merely lists this one; and what nobody claims may be anybody's.

use std::sync::Arc;

use super::listing::Listing;

/// The most steps of comparing one URI with all templates of a server. A million are a few milliseconds.
const MAX_STEPS: usize = 1 << 20;

/// A URI cannot be compared with all templates of a server in that many steps. Whose it is, is not known then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManySteps;

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
    ) -> Result<Option<Self>, TooManySteps> {
        let resources = resources.map_or(&[][..], |listing| &listing.items);
        let templates = templates.map_or(&[][..], |listing| &listing.items);
        let mut steps = Steps(MAX_STEPS);
        for template in templates {
            if fits(&template.key, uri, &mut steps)? {
                return Ok(Some(Self::Own));
            }
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
        Ok(match (is_listed, has_like_it) {
            (true, true) => Some(Self::Own),
            (true, false) => Some(Self::Listed),
            (false, true) => Some(Self::Origin),
            (false, false) => None,
        })
    }
}

/// The steps that are left.
struct Steps(usize);

impl Steps {
    fn take(&mut self, steps: usize) -> Result<(), TooManySteps> {
        self.0 = self.0.checked_sub(steps).ok_or(TooManySteps)?;
        Ok(())
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
fn fits(template: &str, uri: &str, steps: &mut Steps) -> Result<bool, TooManySteps> {
    let Some((scheme, _)) = template.split_once(':') else {
        return Ok(false);
    };
    if scheme.contains('{') {
        return Ok(false);
    }
    // The places in the URI up to which the template may have got.
    let mut places = vec![0];
    let mut rest = template;
    loop {
        let literal = rest.split('{').next().unwrap_or_default();
        // Sixteen bytes are compared at once.
        steps.take(places.len() * (1 + literal.len() / 16))?;
        places.retain_mut(|place| {
            let is_there = uri.get(*place..).is_some_and(|at| at.starts_with(literal));
            *place += literal.len();
            is_there
        });
        rest = &rest[literal.len()..];
        let Some(&first) = places.first() else {
            return Ok(false);
        };
        if rest.is_empty() {
            return Ok(places.contains(&uri.len()));
        }
        let Some((expression, behind)) = rest[1..].split_once('}') else {
            return Ok(false);
        };
        steps.take(uri.len() - first)?;
        places = after(expression, &places, uri);
        rest = behind;
    }
}

/// Where an expression may end that begins at one of these places, which are in order.
fn after(expression: &str, places: &[usize], uri: &str) -> Vec<usize> {
    // Without an operator, a variable has no reserved character in it, and is not empty. With one it may be left out.
    let has_operator = expression.starts_with(|first: char| "+#./;?&".contains(first));
    let mut begins = places.iter().copied().peekable();
    let first = places.first().copied().unwrap_or_default();
    let (mut is_within, mut ends) = (false, Vec::new());
    for (at, next) in uri[first..]
        .char_indices()
        .map(|(at, next)| (first + at, Some(next)))
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

    fn fits(template: &str, uri: &str) -> bool {
        super::fits(template, uri, &mut Steps(MAX_STEPS)).unwrap()
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
        let variables = format!("x:{}", "{+a}a".repeat(20));
        let uri = format!("x:{}", "a".repeat(5000));
        assert!(fits(&variables, &uri) && !fits(&variables, &(uri + "b")));
    }

    #[test]
    fn a_uri_that_takes_too_long_to_compare_is_not_said_to_be_nobodys() {
        let keys: Vec<String> = (0..1000)
            .map(|at| format!("x:{}{at}", "{+a}".repeat(15)))
            .collect();
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let claim = |keys: &[&str], uri: &str| Claim::of(uri, None, Some(&listing(keys)));
        let long = format!("x:{}", "a".repeat(2000));
        assert_eq!(claim(&keys, &long), Err(TooManySteps));
        assert_eq!(claim(&keys, &format!("y:{long}")), Ok(None));
        // What is cheap to compare is compared, however much of it there is.
        assert_eq!(claim(&keys, "x:a999"), Ok(Some(Claim::Own)));
        assert_eq!(claim(&["x:{+a}"], &long.repeat(100)), Ok(Some(Claim::Own)));
        keys.insert(0, "x:{a}");
        assert_eq!(claim(&keys, &long), Ok(Some(Claim::Own)));
    }

    #[test]
    fn claims_are_by_templates_then_by_scheme_and_authority_then_by_listing() {
        let of = |uri, resources: &[&str], templates: &[&str]| {
            Claim::of(uri, Some(&listing(resources)), Some(&listing(templates))).unwrap()
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
        assert_eq!(Claim::of(uri, None, None), Ok(None));
    }
}
