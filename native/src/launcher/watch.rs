//! What becomes of a cell after its plan: started, over a limit, dead.

use std::io;

use rustix::event::epoll;

use super::{CPU_LOOK_NS, DEAD, Launcher, MEMORY, MS, SYNC};
use crate::cell::{Cell, State, Trouble};
use crate::cgroup::Alarm;
use crate::stages::now_ns;
use crate::wire::{Answer, Breach, Limits, Usage};

impl Launcher {
    pub(super) fn cell_event(&mut self, key: u64, kind: u64) -> io::Result<()> {
        match kind {
            SYNC => self.sync(key),
            DEAD => {
                // Both may come at once: what the cell said last counts first.
                self.sync(key)?;
                self.sync(key)?;
                self.bury(key)
            }
            MEMORY => self.alarm(key, Alarm::Memory),
            _ => self.alarm(key, Alarm::Pids),
        }
    }

    pub(super) fn sync(&mut self, key: u64) -> io::Result<()> {
        let Some(cell) = self.cells.get_mut(&key) else {
            return Ok(());
        };
        match cell.state {
            State::Running | State::Over => return Ok(()),
            State::Parked => {
                // Only its end is news: it can't say anything before it has a plan.
                if cell.failure().is_some() {
                    self.park_failed = true;
                }
                let _ = epoll::delete(&self.epoll, cell.sync());
                self.parked.retain(|parked| *parked != key);
                cell.state = State::Over;
                cell.kill();
                return Ok(());
            }
            State::Starting => {}
        }
        match cell.advance(&self.namespaces) {
            Err(trouble) => {
                let id = cell.id;
                self.give_up(key, id, trouble)
            }
            Ok(Some(receipt)) => {
                self.receipts.insert(key, receipt);
                Ok(())
            }
            Ok(None) if cell.state == State::Running => self.started(key),
            Ok(None) => Ok(()),
        }
    }

    pub(super) fn started(&mut self, key: u64) -> io::Result<()> {
        let (Some(cell), Some(receipt)) = (self.cells.get_mut(&key), self.receipts.remove(&key))
        else {
            return Ok(());
        };
        let _ = epoll::delete(&self.epoll, cell.sync());
        self.park_failed = false;
        cell.look_at_ns = next_look(cell);
        let answer = Answer::Spawned {
            id: cell.id,
            pid: cell.tool_pid(),
            warm: cell.warm,
            stages_us: cell.stages_us(),
            receipt: Box::new(receipt),
        };
        let pidfd = cell.pidfd.try_clone()?;
        self.link.answer(&answer, Some(pidfd))
    }

    pub(super) fn alarm(&mut self, key: u64, alarm: Alarm) -> io::Result<()> {
        let Some(cell) = self.cells.get_mut(&key) else {
            return Ok(());
        };
        let count = cell.slot.raised(alarm);
        let Some(limits) = cell.limits.as_ref().filter(|_| count > 0) else {
            return Ok(());
        };
        let breach = match alarm {
            Alarm::Memory => Breach {
                name: "memory",
                limit: limits.memory_bytes,
                used: cell.slot.usage().memory_peak_bytes,
            },
            Alarm::Pids => over_pids(limits),
        };
        cell.breach.get_or_insert(breach);
        cell.kill();
        Ok(())
    }

    /// Looks at every cell whose time has come.
    pub(super) fn look(&mut self) {
        let now = now_ns();
        let mut late = Vec::new();
        for (key, cell) in &mut self.cells {
            if cell.look_at_ns > now {
                continue;
            }
            if cell.state == State::Starting {
                late.push((*key, cell.id));
                continue;
            }
            cell.look_at_ns = u64::MAX;
            match overdrawn(cell, now) {
                Some(breach) => {
                    cell.breach.get_or_insert(breach);
                    cell.kill();
                }
                None => cell.look_at_ns = next_look(cell),
            }
        }
        for (key, id) in late {
            let words = "the program did not start in 10 s".to_owned();
            let _ = self.give_up(key, id, Trouble::Stage("exec", libc::ETIMEDOUT, words));
        }
    }

    /// The init of a cell is dead, and so the whole tree.
    pub(super) fn bury(&mut self, key: u64) -> io::Result<()> {
        let Some(mut cell) = self.cells.remove(&key) else {
            return Ok(());
        };
        let _ = epoll::delete(&self.epoll, &cell.pidfd);
        let _ = epoll::delete(&self.epoll, cell.sync());
        for (_, fd) in cell.slot.alarms() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        self.parked.retain(|parked| *parked != key);
        self.receipts.remove(&key);
        let (status, usage) = cell.reap();
        if cell.state == State::Running {
            let answer = self.epitaph(&mut cell, status, usage);
            self.link.answer(&answer, None)?;
        }
        if cell.slot.remove().is_err() {
            self.lingering.push(cell.slot);
        }
        Ok(())
    }

    pub(super) fn epitaph(&self, cell: &mut Cell, status: Option<i32>, usage: Usage) -> Answer {
        // A tree that was killed as a whole left no status of the tool.
        let status = status.unwrap_or(libc::SIGKILL);
        let signal = (status & 0x7f != 0).then_some(status & 0x7f);
        let exit = (status & 0x7f == 0).then_some((status >> 8) & 0xff);
        if let Some(limits) = cell.limits.as_ref().filter(|_| cell.breach.is_none()) {
            let over_cpu = usage.cpu_us >= limits.cpu_ms * 1000 && signal.is_some();
            if cell.slot.raised(Alarm::Pids) > 0 {
                // It ended on its own before the alarm was heard.
                cell.breach = Some(over_pids(limits));
            } else if usage.oom_kills > 0 {
                cell.breach = Some(Breach {
                    name: "memory",
                    limit: limits.memory_bytes,
                    used: usage.memory_peak_bytes,
                });
            } else if over_cpu {
                cell.breach = Some(Breach {
                    name: "cpu",
                    limit: limits.cpu_ms,
                    used: usage.cpu_us / 1000,
                });
            }
        }
        Answer::Exit {
            id: cell.id,
            exit,
            signal,
            limit: cell.breach.clone(),
            killed: cell.killed.clone(),
            usage,
            leaks: self.leaks(),
        }
    }

    pub(super) fn leaks(&self) -> Vec<String> {
        match self.lingering.len() {
            // One or two slots whose last process the kernel is still taking apart are no leak.
            0..=64 => Vec::new(),
            count => vec![format!("{count} cgroups could not be removed yet")],
        }
    }
}

/// The kernel refuses the process that would be one too many, so that is what was asked for.
fn over_pids(limits: &Limits) -> Breach {
    let (limit, used) = (limits.pids, limits.pids + 1);
    Breach {
        name: "pids",
        limit,
        used,
    }
}

fn overdrawn(cell: &Cell, now: u64) -> Option<Breach> {
    let limits = cell.limits.as_ref()?;
    let wall_ns = now.saturating_sub(cell.started_ns);
    if wall_ns >= limits.wall_ms * MS {
        let (limit, used) = (limits.wall_ms, wall_ns / MS);
        return Some(Breach {
            name: "wall",
            limit,
            used,
        });
    }
    let used = cell.slot.cpu_us() / 1000;
    let limit = limits.cpu_ms;
    (used >= limit).then_some(Breach {
        name: "cpu",
        limit,
        used,
    })
}

/// When a running cell could first be over one of its times.
fn next_look(cell: &Cell) -> u64 {
    let Some(limits) = cell.limits.as_ref() else {
        return u64::MAX;
    };
    let wall = cell.started_ns + limits.wall_ms * MS;
    let left_ns = (limits.cpu_ms * 1000).saturating_sub(cell.slot.cpu_us()) * 1000;
    // At its full bandwidth the tree uses up what is left in this time, no sooner.
    let soonest = left_ns * 100 / limits.cpu_percent.max(1);
    wall.min(now_ns() + soonest.max(CPU_LOOK_NS))
}
