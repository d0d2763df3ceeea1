//! Opening a link in the person's browser.
//!
//! The link is an argument of a program, and every user of the machine can read those: it must have no secret.

use std::process::{Command, Stdio};

use bowline::OpenBrowser;

use crate::environment;

/// Opens links, if there is a browser to open them in.
pub(crate) fn opener() -> Option<OpenBrowser> {
    has_display().then(|| Box::new(open) as OpenBrowser)
}

/// Whether a browser was asked to open the link.
pub(crate) fn open(link: &str) -> bool {
    if !has_display() {
        return false;
    }
    let mut command = Command::new("xdg-open");
    command
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Ctrl-C is meant for this program, not for a browser that it started.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    // Nobody else waits for it to end.
    std::thread::spawn(move || child.wait());
    true
}

/// Without a display, `xdg-open` would look for a browser that takes over the terminal.
fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .into_iter()
        .any(|name| environment::variable(name).is_some_and(|value| !value.is_empty()))
}
