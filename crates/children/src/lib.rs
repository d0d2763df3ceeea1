//! Child processes of a gateway, for MCP servers that speak over stdio.
//!
//! # How to use it
//!
//! ```no_run
//! # async fn example() -> Result<(), bowline_children::SpawnError> {
//! use bowline_children::{GRACE, Line, Lines, Spawn, Supervisor, SupervisorCommand};
//!
//! // One for a gateway. Nothing runs yet: the first child starts the supervisor process.
//! let supervisor = Supervisor::new(SupervisorCommand::this_program("supervise"));
//! let mut child = supervisor
//!     .spawn(Spawn {
//!         argv: vec!["npx".into(), "-y".into(), "some-server".into()],
//!         env: vec![("PATH".into(), "/usr/bin:/bin".into())],
//!         cwd: None,
//!     })
//!     .await?;
//! // Tokio pipes, as in `tokio::process`: each can be taken once. Dropping stdin closes it.
//! let stdin = child.stdin.take();
//! let stdout = child.stdout.take();
//! let mut lines = Lines::with_limit(stdout.expect("it was not taken before"), 1 << 20);
//! while let Ok(Some(line)) = lines.next().await {
//!     match line {
//!         Line::Text(_message) => {}
//!         Line::Empty | Line::NotUtf8(_) | Line::Unfinished(_) => {}
//!         Line::TooLong(_) | Line::Rest { .. } => {}
//!     }
//! }
//! drop(stdin);
//! let exit = child.end(GRACE).await;
//! # drop(exit);
//! # Ok(()) }
//! ```
//!
//! - [`Supervisor::spawn`] starts a child with exactly the given environment (plus [`TAG`]), in its own
//!   process group, without a terminal. [`SpawnError`] distinguishes what went wrong.
//! - [`Child::exited`] waits for the child itself, and borrows nothing. After that, a descendant may still
//!   hold the other end of a pipe: stdout need not end. Call [`Child::end`], or drop the child.
//! - [`Child::end`] closes stdin (if it was not taken: drop it before), waits, sends SIGTERM, waits, and sends
//!   SIGKILL, to the child and all its descendants. It returns when all of them are gone. Dropping a
//!   [`Child`] does the same in the background, also when a task that waits in `spawn` is cancelled.
//! - [`Supervisor::stop`] ends all children and waits for that; later spawns get [`SpawnError::Stopped`].
//!
//! # The supervisor process
//!
//! A gateway starts its children through one small process, `bowline supervise`, whose main is
//! [`supervise`]. It is a subreaper: a descendant of a child whose parent exits becomes a child of the
//! supervisor, and so none escapes with `setsid` or a double fork. When the gateway dies in whatever way,
//! the socket between both closes, and the supervisor ends all children and descendants, and exits.
//!
//! A descendant belongs to a child by its ancestors, by its process group, or by the variable [`TAG`] in its
//! environment. One that left all three (a double fork, `setsid` and a cleared environment) is killed when no
//! child runs that is older than it, and at the latest when the supervisor exits.
//!
//! If somebody kills the supervisor itself, the gateway kills every process that has a tag of this
//! supervisor, and its descendants; the children's exits are [`Exit::Unknown`], and the next child starts a
//! new supervisor. This does not reach a process that cleared its environment and lost its parents.
//!
//! If the gateway and the supervisor are killed in the same moment, the system kills the children (`PR_SET_PDEATHSIG`),
//! but not their descendants, which are left, and not a child that runs as another user by a set-user-id program. A
//! process can ask for that only for itself, so the supervisor starts its own program once more, which asks and then
//! becomes the child.
//!
//! Descriptors of the gateway are not inherited. Those that the gateway itself inherited without close-on-exec
//! from its own parent are.
//!
//! # Systems other than Linux
//!
//! There is no subreaper and no `/proc`: the supervisor signals the process group of a child, and a
//! descendant that left the group survives.
//!
//! # Tests of other crates
//!
//! [`SupervisorCommand`] is any program that calls [`supervise`]. A test program can be its own: with
//! `#[test] #[ignore] fn supervisor() { bowline_children::supervise().unwrap() }` the command is
//! `SupervisorCommand::new(current_exe).args(["--exact", "supervisor", "--ignored", "--nocapture"])`, with the
//! test's full path.

mod child;
mod command;
mod descendants;
mod exit;
mod lines;
mod link;
mod protocol;
mod socket;
mod spawn;
mod supervise;
mod supervisor;
mod tail;

pub use self::child::{Child, GRACE};
pub use self::command::SupervisorCommand;
pub use self::exit::Exit;
pub use self::lines::{Line, Lines};
pub use self::spawn::{Spawn, SpawnError, TAG};
pub use self::supervise::supervise;
pub use self::supervisor::Supervisor;
pub use self::tail::Tail;
