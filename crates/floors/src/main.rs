//! Prints which module uses which, by the floors of `crates/bowline/floors.txt`, every cycle there is, and what breaks
//! the floors: `scripts/module-graph`. Fails if something does. The test of this crate asks the same.

#![expect(clippy::print_stdout, reason = "it is told to people")]

mod floors;
mod source;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use self::floors::{Crates, Floors};
use self::source::cycles;

fn main() -> anyhow::Result<ExitCode> {
    let all = Floors::listed();
    let crates = Crates::read(&all)?;
    let (mut wrong, mut bad) = (Vec::new(), Vec::new());
    for floors in &all {
        let Floors { room, lines } = floors;
        let uses = crates.uses(room);
        println!("[{room}]");
        for name in lines.iter().flatten() {
            let others = uses.get(name).into_iter().flat_map(|it| it.keys());
            println!("{name:16} {}", joined(others));
        }
        wrong.extend(floors.wrong(&uses));
        bad.extend(cycles(&uses).iter().map(|name| format!("{room}::{name}")));
        println!();
    }
    for room in crates.library.rooms() {
        let (name, found) = (room.join("::"), cycles(&crates.library.uses(&room)));
        if !found.is_empty() && all.iter().all(|floors| floors.room != name) {
            println!(
                "in a cycle, in a room without floors: [{name}] {}",
                joined(&found)
            );
        }
    }
    println!("in a cycle: {}", joined(&bad));
    for wrong in &wrong {
        println!("{wrong}");
    }
    match wrong.is_empty() && bad.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

fn joined<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(String::as_str).collect();
    match names.is_empty() {
        true => "-".to_owned(),
        false => names.join(" "),
    }
}
