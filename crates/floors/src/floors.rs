//! `crates/bowline/floors.txt`, and the crates that it is about.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::source::{Segments, Source, Uses};

/// The floors of a room, or of the whole library: its modules, line by line, from the top down.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    /// What the heading says: a module of the library, or another crate. Nothing for the library itself.
    pub(crate) room: String,
    pub(crate) lines: Vec<Vec<String>>,
}

/// The crates that floors.txt is about, each read once.
#[derive(Debug)]
pub(crate) struct Crates {
    pub(crate) library: Source,
    others: BTreeMap<String, Source>,
}

// === impl Floors ===

impl Floors {
    /// Those of the file.
    pub(crate) fn listed() -> Vec<Self> {
        Self::parse(include_str!("../../bowline/floors.txt"))
    }

    pub(crate) fn parse(text: &str) -> Vec<Self> {
        let (mut all, mut now) = (Vec::new(), Self::default());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words = line.split_whitespace().map(str::to_owned);
            match line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                Some(room) => {
                    let room = room.to_owned();
                    let lines = Vec::new();
                    all.push(std::mem::replace(&mut now, Self { room, lines }));
                }
                None => now.lines.push(words.collect()),
            }
        }
        all.push(now);
        all
    }

    /// What is wrong with the modules of this room, and with what they use.
    pub(crate) fn wrong(&self, uses: &Uses) -> Vec<String> {
        let numbered = self.lines.iter().enumerate();
        let numbered = numbered.flat_map(|(line, names)| names.iter().map(move |it| (it, line)));
        let floors: BTreeMap<_, _> = numbered.collect();
        let mut wrong = Vec::new();
        for name in floors.keys().filter(|name| !uses.contains_key(**name)) {
            wrong.push(format!("[{}] there is no `{name}`", self.room));
        }
        for (name, others) in uses {
            let Some(own) = floors.get(name) else {
                wrong.push(format!("[{}] floors.txt lacks `{name}`", self.room));
                continue;
            };
            let above = |other: &String| floors.get(other).is_some_and(|floor| floor <= own);
            for (other, place) in others.iter().filter(|(other, _)| above(other)) {
                wrong.push(format!("[{}] {name} uses {other}: {place}", self.room));
            }
        }
        wrong
    }
}

// === impl Crates ===

impl Crates {
    /// Reads the library, and the crates that have floors.
    pub(crate) fn read(floors: &[Floors]) -> Result<Self> {
        let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let read = |name: &str| Source::of_crate(&crates.join(name).join("src"));
        let library = read("bowline")?;
        let rooms = floors.iter().map(|floors| &floors.room);
        let others = rooms.filter(|room| !library.modules.contains(&path(room)));
        let others = others.map(|room| Ok((room.clone(), read(room)?)));
        let others = others.collect::<Result<_>>()?;
        Ok(Self { library, others })
    }

    /// Which children of a room use which.
    pub(crate) fn uses(&self, room: &str) -> Uses {
        match self.others.get(room) {
            Some(source) => source.uses(&[]),
            None => self.library.uses(&path(room)),
        }
    }
}

/// The path of a room's module below its crate.
pub(crate) fn path(room: &str) -> Segments {
    let names = room.split("::").filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
