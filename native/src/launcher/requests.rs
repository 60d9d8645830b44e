//! What the lane asks for, and what becomes of it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll;

use super::{Launcher, START_NS};
use crate::cell::{Cell, State, Trouble};
use crate::link::Incoming;
use crate::plan;
use crate::stages::now_ns;
use crate::wire::{Answer, Head, Kill, SignalOp, Spawn, read};

impl Launcher {
    /// Takes all requests that are there. `false` when the lane is gone.
    pub(super) fn hear(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            match self.link.receive(buffer)? {
                Incoming::Nothing => return Ok(true),
                Incoming::Closed => return Ok(false),
                Incoming::Truncated => return Err(io::Error::other("a packet over its bound")),
                Incoming::Packet(count, fds) => {
                    let packet = buffer.get(..count).unwrap_or_default();
                    self.request(packet, fds)?;
                }
            }
        }
    }

    pub(super) fn request(&mut self, packet: &[u8], fds: Vec<OwnedFd>) -> io::Result<()> {
        let head: Head = read(packet).map_err(io::Error::other)?;
        let refused = match head.op.as_str() {
            "spawn" => match read::<Spawn>(packet) {
                Ok(plan) => return self.spawn(&plan, &fds),
                Err(reason) => Some(reason),
            },
            "kill" => match read::<Kill>(packet) {
                Ok(kill) if kill.reason.len() > 64 => Some("reason: at most 64 bytes".to_owned()),
                Ok(kill) => {
                    if let Some(cell) = self.find(kill.id) {
                        cell.killed.get_or_insert(kill.reason);
                        cell.kill();
                    }
                    None
                }
                Err(reason) => Some(reason),
            },
            "signal" => match read::<SignalOp>(packet) {
                Ok(signal) if signal.signal == libc::SIGTERM => {
                    if let Some(cell) = self.find(signal.id) {
                        cell.terminate();
                    }
                    None
                }
                Ok(_) => Some("signal: 15".to_owned()),
                Err(reason) => Some(reason),
            },
            "usage" => match self.find(head.id).map(|cell| cell.usage()) {
                Some(usage) => {
                    let id = head.id;
                    return self.link.answer(&Answer::Usage { id, usage }, None);
                }
                None => Some("no such cell".to_owned()),
            },
            other => Some(format!("op {other:?} is none")),
        };
        match refused {
            Some(reason) => {
                let id = head.id;
                self.link.answer(&Answer::Refused { id, reason }, None)
            }
            None => Ok(()),
        }
    }

    pub(super) fn find(&mut self, id: u64) -> Option<&mut Cell> {
        let lives = |cell: &&mut Cell| matches!(cell.state, State::Starting | State::Running);
        self.cells
            .values_mut()
            .filter(lives)
            .find(|cell| cell.id == id)
    }

    pub(super) fn spawn(&mut self, plan: &Spawn, fds: &[OwnedFd]) -> io::Result<()> {
        let id = plan.id;
        let refusal = match plan::without(&plan.without) {
            Err(reason) => Some(reason),
            Ok(bits) if bits != 0 && !self.weaken => {
                Some("without: this launcher weakens nothing".to_owned())
            }
            Ok(_) if self.find(id).is_some() => Some(format!("id: {id} is alive")),
            Ok(_) if plan.fds.len() != fds.len() => Some(format!(
                "fds: {} named, {} passed",
                plan.fds.len(),
                fds.len()
            )),
            Ok(_) => None,
        };
        if let Some(reason) = refusal {
            return self.link.answer(&Answer::Refused { id, reason }, None);
        }
        if let Some((feature, why)) = self.missing.iter().next() {
            let (stage, detail) = ("probe".to_owned(), format!("{feature}: {why}"));
            let answer = Answer::Failed {
                id,
                stage,
                errno: libc::ENOTSUP,
                detail,
            };
            return self.link.answer(&answer, None);
        }
        let without = plan::without(&plan.without).unwrap_or(0);
        // A parked cell has every control.
        let parked = if without == 0 {
            self.parked.pop()
        } else {
            None
        };
        let key = match parked {
            Some(key) => key,
            None => match self.make(without) {
                Ok(key) => key,
                Err(trouble) => return self.report(id, trouble),
            },
        };
        let Some(cell) = self.cells.get_mut(&key) else {
            return Ok(());
        };
        match cell.plan(plan, fds) {
            Ok(()) => {
                cell.look_at_ns = now_ns() + START_NS;
                Ok(())
            }
            Err(trouble) => self.give_up(key, id, trouble),
        }
    }

    /// Ends a cell whose program never ran, and says why.
    pub(super) fn give_up(&mut self, key: u64, id: u64, trouble: Trouble) -> io::Result<()> {
        if let Some(cell) = self.cells.get_mut(&key) {
            cell.state = State::Over;
            cell.look_at_ns = u64::MAX;
            let _ = epoll::delete(&self.epoll, cell.sync());
            cell.kill();
        }
        self.receipts.remove(&key);
        self.report(id, trouble)
    }

    pub(super) fn report(&mut self, id: u64, trouble: Trouble) -> io::Result<()> {
        let answer = match trouble {
            Trouble::Plan(reason) => Answer::Refused { id, reason },
            Trouble::Stage(stage, errno, detail) => Answer::Failed {
                id,
                stage: stage.to_owned(),
                errno,
                detail,
            },
        };
        self.link.answer(&answer, None)
    }
}
