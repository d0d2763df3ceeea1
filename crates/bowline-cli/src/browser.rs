//! Opening a link in the person's browser.

use std::process::{Command, Stdio};

use crate::environment;

#[cfg(target_os = "macos")]
const OPENER: &str = "open";
#[cfg(not(target_os = "macos"))]
const OPENER: &str = "xdg-open";

/// Whether a browser was asked to open the link. A link from a stranger is one argument of one
/// program, never a part of a shell's line, and never anything but a page of the web.
pub(crate) fn open(link: &str) -> bool {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| link.starts_with(scheme));
    if !is_web || !has_display() {
        return false;
    }
    let mut command = Command::new(OPENER);
    command
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Ctrl-C is meant for this program, not for a browser that it started.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().is_ok()
}

/// Without a display, `xdg-open` would look for a browser that takes over the terminal.
fn has_display() -> bool {
    cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .into_iter()
            .any(|name| environment::variable(name).is_some_and(|value| !value.is_empty()))
}
