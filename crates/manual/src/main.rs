//! Writes what packages carry beside the program: a man page for each command, and completions for bash, zsh
//! and fish. All of it follows from the command line, which is that of `bowline-cli` itself.
//!
//! `scripts/package` runs it: `bowline-manual DIRECTORY`.

#[allow(
    dead_code,
    reason = "the command line is described here, and read elsewhere"
)]
#[path = "../../bowline-cli/src/args.rs"]
mod args;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use clap_complete::Shell;

/// Writes Bowline's man pages and shell completions.
#[derive(Debug, Parser)]
#[command(name = "bowline-manual")]
struct Arguments {
    /// Where to: `man` and `completions` are created there
    directory: PathBuf,
}

fn main() -> anyhow::Result<()> {
    write(&Arguments::parse().directory)
}

fn write(directory: &Path) -> anyhow::Result<()> {
    let bowline = args::Arguments::command();
    let pages = directory.join("man");
    create(&pages)?;
    // One for each command that is not hidden.
    let described = bowline.clone().disable_help_subcommand(true);
    clap_mangen::generate_to(described, &pages).context("cannot write the man pages")?;
    let completions = directory.join("completions");
    create(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut bowline.clone(), "bowline", &completions)
            .with_context(|| format!("cannot write the completions of {shell}"))?;
    }
    Ok(())
}

fn create(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_knows_it() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let shells = ["bowline.bash", "_bowline", "bowline.fish"];
        let completions = shells.map(|name| read(&format!("completions/{name}")));
        for command in args::Arguments::command().get_subcommands() {
            let name = command.get_name();
            let path = format!("man/bowline-{name}.1");
            if command.is_hide_set() {
                assert!(!directory.path().join(path).exists(), "{name}");
                continue;
            }
            let page = read(&path);
            assert!(page.contains(&format!("bowline\\-{name}")), "{page}");
            assert!(page.contains(".SH OPTIONS"), "{page}");
            for text in &completions {
                assert!(text.contains(name), "{name}");
            }
        }
        assert!(read("man/bowline.1").contains("bowline\\-serve(1)"));
    }
}
