//! Reads the modules of a crate: which there are, and what each names. Whole files are read; only items behind
//! `#[cfg(test)]` and files of tests are left out, because tests may use anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The segments of a path: of a module, from the root of its crate, or of what code names.
pub(crate) type Segments = Vec<String>;

/// Which child of a room uses which, and one place where it does.
pub(crate) type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// How many imports lead from a name to its item, at most.
const LONGEST_WAY: usize = 64;

/// The modules of one crate.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) modules: BTreeSet<Segments>,
    /// What a module imports or re-exports, by its name there.
    imports: BTreeMap<(Segments, String), Segments>,
    /// Every path with `::`, and the module whose code names it.
    pub(crate) named: BTreeSet<(Segments, Segments)>,
}

impl Source {
    /// Reads a crate, given its `src`.
    pub(crate) fn of_crate(src: &Path) -> Result<Self> {
        let mut source = Self::default();
        let read = source.add_directory(src, &[]);
        read.with_context(|| src.display().to_string())?;
        Ok(source)
    }

    fn add_directory(&mut self, directory: &Path, parent: &[String]) -> Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let module = match path.file_stem().and_then(OsStr::to_str) {
                None | Some("tests" | "bin") => continue,
                Some("lib" | "main") if parent.is_empty() => Segments::new(),
                Some(name) => below(parent, name),
            };
            if path.is_dir() {
                self.add_directory(&path, &module)?;
            } else if path.extension().is_some_and(|it| it == "rs") {
                self.add(&module, &fs::read_to_string(&path)?)?;
            }
        }
        Ok(())
    }

    /// Adds a module with its text.
    pub(crate) fn add(&mut self, module: &[String], text: &str) -> Result<()> {
        self.modules.insert(module.to_vec());
        let tokens = text.parse::<TokenStream>();
        let tokens = tokens.map_err(|error| anyhow!("{module:?}: {error}"))?;
        self.read(module, tokens);
        Ok(())
    }

    fn read(&mut self, module: &[String], tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (TokenTree::Group(group), _) => self.read(module, group.stream()),
                (TokenTree::Punct(_), [TokenTree::Group(attribute), item @ ..])
                    if attribute.to_string() == "[cfg (test)]" =>
                {
                    rest = after_item(item);
                }
                (TokenTree::Ident(word), [name, TokenTree::Group(body), after @ ..])
                    if word == "mod" =>
                {
                    self.modules.insert(below(module, &name.to_string()));
                    self.read(&below(module, &name.to_string()), body.stream());
                    rest = after;
                }
                // Not the `use<…>` of a type.
                (TokenTree::Ident(word), [TokenTree::Ident(_), ..]) if word == "use" => {
                    let (tree, after) = after.split_at(end_of(after, false));
                    self.import(module, &[], tree);
                    rest = after;
                }
                (TokenTree::Ident(word), _) => {
                    let mut path = vec![word.to_string()];
                    while let [
                        TokenTree::Punct(one),
                        TokenTree::Punct(two),
                        TokenTree::Ident(next),
                        after @ ..,
                    ] = rest
                        && (one.as_char(), two.as_char()) == (':', ':')
                    {
                        path.push(next.to_string());
                        rest = after;
                    }
                    if path.len() > 1 {
                        self.named.insert((module.to_vec(), path));
                    }
                }
                (TokenTree::Punct(_) | TokenTree::Literal(_), _) => {}
            }
        }
    }

    /// Notes what a `use` names, the trees of its groups included.
    fn import(&mut self, module: &[String], prefix: &[String], trees: &[TokenTree]) {
        for tree in trees.split(|token| is_mark(token, ',')) {
            let (mut path, mut name) = (prefix.to_vec(), None);
            let mut tokens = tree.iter();
            let group = loop {
                match tokens.next() {
                    Some(TokenTree::Group(group)) => break Some(group),
                    Some(TokenTree::Ident(word)) if word == "as" => name = tokens.next(),
                    Some(TokenTree::Ident(word)) if word == "self" && !path.is_empty() => {}
                    Some(TokenTree::Ident(word)) => path.push(word.to_string()),
                    Some(TokenTree::Punct(_) | TokenTree::Literal(_)) => {}
                    None => break None,
                }
            };
            if let Some(group) = group {
                let trees: Vec<_> = group.stream().into_iter().collect();
                self.import(module, &path, &trees);
            } else if let Some(last) = path.last() {
                let name = name.map_or_else(|| last.clone(), ToString::to_string);
                let imported = (module.to_vec(), name);
                self.imports.insert(imported, path.clone());
                self.named.insert((module.to_vec(), path));
            }
        }
    }

    /// The module that has what `module` names by this path. Nothing if that is of another crate.
    pub(crate) fn home(&self, module: &[String], path: &[String]) -> Option<Segments> {
        let (mut at, mut is_relative) = (module.to_vec(), true);
        let mut rest: VecDeque<_> = path.iter().cloned().collect();
        for _ in 0..LONGEST_WAY {
            let Some(name) = rest.pop_front() else {
                return Some(at);
            };
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.modules.contains(&below(&at, &name)) => at.push(name),
                _ => {
                    let Some(import) = self.imports.get(&(at.clone(), name)) else {
                        return (!is_relative).then_some(at);
                    };
                    for segment in import.iter().rev() {
                        rest.push_front(segment.clone());
                    }
                    is_relative = true;
                    continue;
                }
            }
            is_relative = false;
        }
        None
    }

    /// The modules that have children.
    pub(crate) fn rooms(&self) -> BTreeSet<Segments> {
        let parents = self.modules.iter().filter_map(|module| module.split_last());
        parents.map(|(_, parent)| parent.to_vec()).collect()
    }

    /// Which children of a room use which of the others.
    pub(crate) fn uses(&self, room: &[String]) -> Uses {
        let child = |module: &[String]| module.strip_prefix(room)?.first().cloned();
        let children = self.modules.iter().filter_map(|module| child(module));
        let mut uses: Uses = children.map(|child| (child, BTreeMap::new())).collect();
        for (module, path) in &self.named {
            let Some(own) = child(module) else { continue };
            let other = self.home(module, path).and_then(|home| child(&home));
            if let Some(other) = other.filter(|other| *other != own) {
                let place = format!("{} in {}", path.join("::"), module.join("/"));
                uses.entry(own).or_default().insert(other, place);
            }
        }
        uses
    }
}

fn below(parent: &[String], name: &str) -> Segments {
    [parent, &[name.to_owned()]].concat()
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Where an item ends: after its `;`, or its braces if it can end with them.
fn end_of(item: &[TokenTree], has_braces: bool) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => has_braces && group.delimiter() == Delimiter::Brace,
        token => is_mark(token, ';'),
    };
    let end = item.iter().position(is_end);
    end.map_or(item.len(), |end| end + 1)
}

fn after_item(item: &[TokenTree]) -> &[TokenTree] {
    let is_use = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "use");
    let before = &item[..end_of(item, true)];
    let end = end_of(item, !before.iter().any(is_use));
    &item[end..]
}

/// The modules that reach themselves.
pub(crate) fn cycles(uses: &Uses) -> Vec<String> {
    let reaches_itself = |start: &String| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![start]);
        while let Some(others) = left.pop().and_then(|name| uses.get(name)) {
            left.extend(others.keys().filter(|other| seen.insert(*other)));
        }
        seen.contains(start)
    };
    let names = uses.keys().filter(|name| reaches_itself(name));
    names.cloned().collect()
}
