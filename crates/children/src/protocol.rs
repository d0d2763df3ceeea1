//! What gateway and supervisor say to each other: frames of a length (four bytes), a kind, and fields.
//!
//! Both ends are the same program, so there is no version. A frame that cannot be read ends the connection.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use crate::exit::Exit;
use crate::spawn::{Failure, FailureKind, Spawn};

/// More than the system accepts as arguments and environment (`ARG_MAX` is 2 MiB on Linux).
pub(crate) const LARGEST_FRAME: usize = 4 << 20;

/// The number of a child, unique for a supervisor.
pub(crate) type ChildId = u64;

/// What the gateway asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Start a child. Its stdin, stdout and stderr are sent with the frame's first byte.
    Spawn {
        id: ChildId,
        tag: String,
        spawn: Spawn,
    },
    /// End a child whose stdin is closed: SIGTERM after `grace`, SIGKILL after another.
    End { id: ChildId, grace: Duration },
}

/// What the supervisor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The supervisor works.
    Ready,
    /// The child runs.
    Spawned { id: ChildId, pid: i32 },
    /// The child was not started.
    Failed { id: ChildId, failure: Failure },
    /// The child exited; descendants may be left.
    Exited { id: ChildId, exit: Exit },
    /// The child was ended, and so were all its descendants.
    Gone { id: ChildId },
}

/// A frame that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame cannot be read")]
pub(crate) struct BadFrame;

// === impl Request ===

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Spawn { id, tag, spawn } => {
                let mut frame = Writer::new(0, *id);
                frame.bytes(tag.as_bytes());
                frame.number(spawn.argv.len());
                spawn
                    .argv
                    .iter()
                    .for_each(|one| frame.bytes(one.as_bytes()));
                frame.number(spawn.env.len());
                for (name, value) in &spawn.env {
                    frame.bytes(name.as_bytes());
                    frame.bytes(value.as_bytes());
                }
                let cwd = spawn.cwd.as_ref().map(|cwd| cwd.as_os_str().as_bytes());
                frame.bytes(cwd.unwrap_or_default());
                frame.finish()
            }
            Self::End { id, grace } => {
                let mut frame = Writer::new(1, *id);
                frame.number(usize::try_from(grace.as_millis()).unwrap_or(usize::MAX));
                frame.finish()
            }
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let mut frame = Reader(frame);
        let kind = frame.byte()?;
        let id = frame.id()?;
        match kind {
            0 => {
                let tag = String::from_utf8(frame.bytes()?.to_vec()).map_err(|_| BadFrame)?;
                let argv = (0..frame.number()?)
                    .map(|_| frame.text())
                    .collect::<Result<_, _>>()?;
                let env = (0..frame.number()?)
                    .map(|_| Ok((frame.text()?, frame.text()?)))
                    .collect::<Result<_, _>>()?;
                let cwd = Some(frame.text()?).filter(|cwd| !cwd.is_empty());
                let cwd = cwd.map(Into::into);
                let spawn = Spawn { argv, env, cwd };
                Ok(Self::Spawn { id, tag, spawn })
            }
            1 => {
                let grace = Duration::from_millis(frame.number()?.into());
                Ok(Self::End { id, grace })
            }
            _ => Err(BadFrame),
        }
    }
}

// === impl Event ===

impl Event {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::Ready => Writer::new(0, 0).finish(),
            Self::Spawned { id, pid } => Writer::new(1, id).signed(pid).finish(),
            Self::Failed { id, failure } => {
                let kind = match failure.kind {
                    FailureKind::NotFound => 0,
                    FailureKind::NotExecutable => 1,
                    FailureKind::BadDirectory => 2,
                    FailureKind::OutOfResources => 3,
                    FailureKind::Refused => 4,
                };
                let mut frame = Writer::new(2, id);
                frame.signed(kind).signed(failure.errno).finish()
            }
            Self::Exited { id, exit } => {
                let (kind, number) = match exit {
                    Exit::Code(code) => (0, code),
                    Exit::Signal(signal) => (1, signal),
                    Exit::Unknown => (2, 0),
                };
                Writer::new(3, id).signed(kind).signed(number).finish()
            }
            Self::Gone { id } => Writer::new(4, id).finish(),
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let mut frame = Reader(frame);
        let kind = frame.byte()?;
        let id = frame.id()?;
        Ok(match kind {
            0 => Self::Ready,
            1 => Self::Spawned {
                id,
                pid: frame.signed()?,
            },
            2 => {
                let kind = match frame.signed()? {
                    0 => FailureKind::NotFound,
                    1 => FailureKind::NotExecutable,
                    2 => FailureKind::BadDirectory,
                    3 => FailureKind::OutOfResources,
                    4 => FailureKind::Refused,
                    _ => return Err(BadFrame),
                };
                let errno = frame.signed()?;
                Self::Failed {
                    id,
                    failure: Failure { kind, errno },
                }
            }
            3 => {
                let exit = match (frame.signed()?, frame.signed()?) {
                    (0, code) => Exit::Code(code),
                    (1, signal) => Exit::Signal(signal),
                    _ => Exit::Unknown,
                };
                Self::Exited { id, exit }
            }
            4 => Self::Gone { id },
            _ => return Err(BadFrame),
        })
    }
}

/// Takes the next whole frame out of what was received.
pub(crate) fn next_frame(received: &mut BytesMut) -> Result<Option<BytesMut>, BadFrame> {
    let Some(length) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > LARGEST_FRAME {
        return Err(BadFrame);
    }
    if received.len() < 4 + length {
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(length)))
}

/// A frame that is being written.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8, id: ChildId) -> Self {
        let mut frame = vec![0, 0, 0, 0, kind];
        frame.extend(id.to_be_bytes());
        Self(frame)
    }

    fn number(&mut self, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.0.extend(number.to_be_bytes());
    }

    fn signed(&mut self, number: i32) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend(bytes);
    }

    fn finish(&mut self) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.0);
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame
    }
}

/// What is left of a frame that is being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadFrame> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(BadFrame)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, BadFrame> {
        Ok(u8::from_be_bytes(self.take()?))
    }

    fn id(&mut self) -> Result<ChildId, BadFrame> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn number(&mut self) -> Result<u32, BadFrame> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn signed(&mut self) -> Result<i32, BadFrame> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadFrame> {
        let length = self.number()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(BadFrame)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<OsString, BadFrame> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawn_arrives_as_it_was_sent() {
        let spawn = Spawn {
            argv: vec!["a".into(), "".into(), OsString::from_vec(vec![0xff])],
            env: vec![("A".into(), "b=c\n".into())],
            cwd: Some("/tmp".into()),
        };
        let sent = Request::Spawn {
            id: 7,
            tag: "t-7".to_owned(),
            spawn: spawn.clone(),
        };
        let mut received = BytesMut::new();
        for byte in sent.encode() {
            assert_eq!(next_frame(&mut received), Ok(None));
            received.extend([byte]);
        }
        let frame = next_frame(&mut received).unwrap().unwrap();
        let Ok(Request::Spawn {
            id,
            tag,
            spawn: got,
        }) = Request::decode(&frame)
        else {
            panic!("no spawn");
        };
        assert_eq!((id, &*tag), (7, "t-7"));
        assert_eq!(
            (got.argv, got.env, got.cwd),
            (spawn.argv, spawn.env, spawn.cwd)
        );
        for cut in 0..frame.len() {
            assert_eq!(Request::decode(&frame[..cut]).unwrap_err(), BadFrame);
        }
    }

    #[test]
    fn events_arrive_as_they_were_sent() {
        let failure = Failure {
            kind: FailureKind::BadDirectory,
            errno: 2,
        };
        for event in [
            Event::Ready,
            Event::Spawned { id: 1, pid: 77 },
            Event::Failed { id: 2, failure },
            Event::Exited {
                id: u64::MAX,
                exit: Exit::Code(-1),
            },
            Event::Exited {
                id: 3,
                exit: Exit::Signal(9),
            },
            Event::Gone { id: 4 },
        ] {
            let mut received = BytesMut::from(&*event.encode());
            let frame = next_frame(&mut received).unwrap().unwrap();
            assert_eq!(Event::decode(&frame), Ok(event));
            assert!(received.is_empty());
        }
        assert_eq!(
            next_frame(&mut BytesMut::from(&[255_u8; 8][..])),
            Err(BadFrame)
        );
    }
}
