//! Whether a client in JavaScript can compile a pattern (`new RegExp(pattern, "u")`). What is rare is taken for what it
//! cannot compile: then a schema is not checked, which is better than a list that is refused.

use std::iter::Peekable;
use std::str::Chars;

/// Characters that stand for themselves only behind a backslash.
const SYNTAX: &str = "^$\\.*+?()[]{}|/";

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 100;

/// The most groups of a pattern.
const MAX_GROUPS: usize = 1000;

/// Whether the pattern is a regular expression.
pub(super) fn is_regular(pattern: &str) -> bool {
    let mut reader = Reader {
        rest: pattern.chars().peekable(),
        depth: 0,
        groups: 0,
    };
    reader.alternatives().is_some() && reader.rest.next().is_none()
}

struct Reader<'p> {
    rest: Peekable<Chars<'p>>,
    depth: usize,
    groups: usize,
}

/// What an escape or a member of a class stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    ForOne(u32),
    ForMany,
}

/// What something is, as far as it matters to what may follow.
#[derive(PartialEq, Eq)]
enum Term {
    MayRepeat,
    MayNot,
}

/// Everything here returns `None` where the pattern is not regular.
impl Reader<'_> {
    fn takes(&mut self, char: char) -> bool {
        self.rest.next_if_eq(&char).is_some()
    }

    fn takes_all(&mut self, text: &str) -> bool {
        let mut ahead = self.rest.clone();
        let is_there = text.chars().all(|char| ahead.next() == Some(char));
        if is_there {
            self.rest = ahead;
        }
        is_there
    }

    fn alternatives(&mut self) -> Option<()> {
        while let Some(char) = self.rest.peek() {
            match char {
                ')' => break,
                '|' => {
                    self.rest.next();
                }
                _ => {
                    if self.term()? == Term::MayRepeat {
                        self.quantifier()?;
                    }
                }
            }
        }
        Some(())
    }

    fn term(&mut self) -> Option<Term> {
        match self.rest.next()? {
            '^' | '$' => Some(Term::MayNot),
            '(' => self.group(),
            '[' => self.class().map(|()| Term::MayRepeat),
            '\\' if self.takes('b') || self.takes('B') => Some(Term::MayNot),
            '\\' => self.escape().map(|_| Term::MayRepeat),
            '.' => Some(Term::MayRepeat),
            char if SYNTAX.contains(char) && char != '/' => None,
            _ => Some(Term::MayRepeat),
        }
    }

    fn group(&mut self) -> Option<Term> {
        let looks = ["?=", "?!", "?<=", "?<!"];
        let is_look = looks.iter().any(|look| self.takes_all(look));
        if !is_look && !self.takes_all("?:") && self.rest.peek() == Some(&'?') {
            // With a name, or with flags.
            return None;
        }
        self.depth += 1;
        self.groups += 1;
        if self.depth > MAX_DEPTH || self.groups > MAX_GROUPS {
            return None;
        }
        self.alternatives()?;
        self.depth -= 1;
        let term = match is_look {
            true => Term::MayNot,
            false => Term::MayRepeat,
        };
        self.takes(')').then_some(term)
    }

    fn quantifier(&mut self) -> Option<()> {
        if self.takes('{') {
            let least = self.number()?;
            if self.takes(',') && self.rest.peek() != Some(&'}') && self.number()? < least {
                return None;
            }
            if !self.takes('}') {
                return None;
            }
        } else if !["*", "+", "?"].iter().any(|one| self.takes_all(one)) {
            return Some(());
        }
        self.takes('?');
        Some(())
    }

    fn number(&mut self) -> Option<u32> {
        let mut digits = String::new();
        while let Some(digit) = self.rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        digits.parse().ok()
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Option<Stands> {
        let char = self.rest.next()?;
        Some(match char {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => Stands::ForMany,
            'p' | 'P' => {
                let known = [
                    "{L}", "{Lu}", "{Ll}", "{M}", "{N}", "{Nd}", "{P}", "{S}", "{Z}",
                ];
                known
                    .iter()
                    .any(|name| self.takes_all(name))
                    .then_some(Stands::ForMany)?
            }
            't' => Stands::ForOne(9),
            'n' => Stands::ForOne(10),
            'v' => Stands::ForOne(11),
            'f' => Stands::ForOne(12),
            'r' => Stands::ForOne(13),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => Stands::ForOne(0),
            'x' => Stands::ForOne(self.code(2)?),
            'u' => Stands::ForOne(self.code(4)?),
            char if SYNTAX.contains(char) => Stands::ForOne(char.into()),
            _ => return None,
        })
    }

    /// So many hexadecimal digits.
    fn code(&mut self, length: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..length {
            code = code * 16 + self.rest.next()?.to_digit(16)?;
        }
        // Half a character might be one with what follows.
        char::from_u32(code).map(u32::from)
    }

    fn class(&mut self) -> Option<()> {
        self.takes('^');
        while !self.takes(']') {
            let first = self.class_member()?;
            let mut ahead = self.rest.clone();
            if ahead.next() != Some('-') || ahead.peek() == Some(&']') {
                continue;
            }
            self.rest = ahead;
            let last = self.class_member()?;
            let is_range = first <= last && first != Stands::ForMany && last != Stands::ForMany;
            if !is_range {
                return None;
            }
        }
        Some(())
    }

    fn class_member(&mut self) -> Option<Stands> {
        match self.rest.next()? {
            '\\' if self.takes('b') => Some(Stands::ForOne(8)),
            '\\' if self.takes('-') => Some(Stands::ForOne('-'.into())),
            '\\' => self.escape(),
            char => Some(Stands::ForOne(char.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_what_javascript_takes_for_them() {
        for regular in [
            "",
            "^a|b?$",
            r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
            r"^\d{4}-(?:0[1-9]|1[0-2])T\/[^\]]+?[\w-]{0,3}$",
            r"\u0041\x41\0\p{Lu}(?<=a)(?<!b)(?:)[][[:alpha:]",
            "工{1,2}/",
        ] {
            assert!(is_regular(regular), "{regular}");
        }
        for other in [
            "[",
            "(",
            ")",
            "a)",
            "*",
            "a**",
            "a{",
            "a{2,1}",
            "}",
            "]",
            r"\",
            r"\q",
            r"\-",
            r"[\w-z]",
            "[z-a]",
            "(?i)a",
            r"\A",
            r"\1",
            "(?=a)*",
            "^*",
            r"\u{zz}",
            r"\p{Nope}",
            "(?<n>a)",
            r"\ud83d",
            "a{9999999999999}",
        ] {
            assert!(!is_regular(other), "{other}");
        }
        assert!(!is_regular(&"(".repeat(100_000)));
        assert!(is_regular(&"()".repeat(1000)));
        assert!(!is_regular(&"()".repeat(1001)));
    }
}
