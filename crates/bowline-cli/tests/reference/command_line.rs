//! The command line, as clap knows it.

use clap::{Arg, Command, CommandFactory as _};

use crate::page::{head, row};

#[path = "../../src/args.rs"]
mod args;

/// A table for each command.
pub(crate) fn tables() -> String {
    let mut text = String::new();
    let commands = args::Arguments::command();
    // Those that only Bowline itself starts are hidden.
    let shown = commands
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    for command in shown {
        text.push_str(&format!("### `bowline {}`\n\n", usage(command)));
        let about = command.get_about().unwrap();
        text.push_str(&format!("{about}.\n\n"));
        if command.get_arguments().next().is_some() {
            text.push_str(&head(["option", "meaning"]));
            for argument in command.get_arguments() {
                let help = argument.get_help().unwrap().to_string();
                text.push_str(&row([
                    &format!("`{}`", option(argument)),
                    &(help + &default(argument)),
                ]));
            }
            text.push('\n');
        }
    }
    text
}

/// The command and what it cannot do without.
fn usage(command: &Command) -> String {
    let positionals = command
        .get_positionals()
        .map(|positional| match positional.is_last_set() {
            true => format!("-- {}", value(positional)),
            false => value(positional),
        });
    let words = std::iter::once(command.get_name().to_owned()).chain(positionals);
    words.collect::<Vec<_>>().join(" ")
}

/// An option as it is typed.
fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let value = if argument.get_action().takes_values() {
        value(argument)
    } else {
        String::new()
    };
    format!("{} {value}", names.join(", ")).trim().to_owned()
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What may stand there, where clap knows it, and what does when nothing is said.
fn default(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let values = argument.get_possible_values();
    let values: Vec<_> = values
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let defaults = argument.get_default_values();
    let default: Vec<_> = defaults
        .iter()
        .map(|value| value.display().to_string())
        .collect();
    let mut text = String::new();
    if !values.is_empty() {
        text.push_str(&format!(": {}", values.join(" or ")));
    }
    if !default.is_empty() {
        text.push_str(&format!(" [default: {}]", default.join(" ")));
    }
    text
}
