//! The event loop: the lane on one side, cells on the other.
//!
//! Single-threaded, so that a clone copies a process that holds no lock. Owns the pool of parked
//! cells, the deadlines and the clean-up. What it must never do: block on the lane, or go on when
//! the lane is gone.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::cell::{Cell, State, Trouble};
use crate::cgroup::{self, Alarm, Hierarchy, NEEDED, Slot};
use crate::link::{Incoming, Link};
use crate::receipt::{Receipt, namespaces};
use crate::stages::now_ns;
use crate::wire::{
    Answer, Breach, Head, Hello, Kill, Limits, PACKET_MAX, PROTOCOL, SignalOp, Spawn, read,
};
use crate::{janitor, plan, sys};

/// A cell whose program does not run by then is given up.
const START_NS: u64 = 10_000_000_000;
/// CPU time is looked at no more often than this.
const CPU_LOOK_NS: u64 = 2_000_000;
const MS: u64 = 1_000_000;
/// Host uids for cells are taken in turn from this many.
const UIDS: u32 = 65_536;

/// Which of a cell's descriptors an event is about; in the low bits of the event's data.
const LANE: u64 = 0;
const SYNC: u64 = 1;
const DEAD: u64 = 2;
const MEMORY: u64 = 3;
const PIDS: u64 = 4;

/// Serves one lane until it is gone.
pub fn serve(socket: OwnedFd, weaken: bool) -> io::Result<()> {
    let mut link = Link::new(socket)?;
    let hello = match first(&mut link)? {
        Some(hello) => hello,
        None => return Ok(()),
    };
    let mut launcher = Launcher::start(link, hello, weaken)?;
    let served = launcher.run();
    let ended = launcher.end();
    served.and(ended)
}

/// Waits for `hello`.
fn first(link: &mut Link) -> io::Result<Option<Hello>> {
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        let mut wait = [rustix::event::PollFd::from_borrowed_fd(
            link.fd(),
            rustix::event::PollFlags::IN,
        )];
        let _ = rustix::event::poll(&mut wait, None);
        let count = match link.receive(&mut buffer)? {
            Incoming::Nothing => continue,
            Incoming::Closed => return Ok(None),
            Incoming::Truncated => return Err(io::Error::other("a packet over its bound")),
            Incoming::Packet(count, _) => count,
        };
        let packet = &buffer[..count];
        let head: Head = read(packet).map_err(io::Error::other)?;
        let reason = match read::<Hello>(packet) {
            _ if head.op != "hello" => "the first request is hello".to_owned(),
            Err(reason) => reason,
            Ok(hello) if hello.protocol != PROTOCOL => format!("protocol {PROTOCOL} is spoken"),
            Ok(hello) if hello.pool > 64 => "pool: 0..=64".to_owned(),
            Ok(hello) if !good_name(&hello.cgroup_parent) => "cgroup_parent: a name".to_owned(),
            Ok(hello) if hello.uid_base.checked_add(UIDS).is_none() => "uid_base".to_owned(),
            Ok(hello) => return Ok(Some(hello)),
        };
        link.answer(&Answer::Refused { id: 0, reason }, None)?;
    }
}

fn good_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.bytes().all(good)
}

struct Launcher {
    link: Link,
    weaken: bool,
    epoll: OwnedFd,
    hierarchy: Box<dyn Hierarchy>,
    missing: BTreeMap<&'static str, String>,
    namespaces: BTreeMap<&'static str, u64>,
    landlock_abi: u32,
    identity: String,
    /// Held open for the janitor's sake.
    _janitor: Option<OwnedFd>,
    pool: usize,
    uid_base: u32,
    made: u32,
    cells: HashMap<u64, Cell>,
    receipts: HashMap<u64, Receipt>,
    parked: Vec<u64>,
    /// Slots whose cell is dead and that could not be removed yet.
    lingering: Vec<Box<dyn Slot>>,
    /// A cell that died while it parked: no more are made ahead until a call has succeeded.
    park_failed: bool,
}

impl Launcher {
    fn start(link: Link, hello: Hello, weaken: bool) -> io::Result<Self> {
        let hierarchy = cgroup::find(&hello.cgroup_parent)?;
        let landlock_abi = sys::landlock_abi();
        let own = std::process::id();
        let identity = janitor::identity(own).ok_or_else(|| io::Error::other("no /proc"))?;
        let mut missing = BTreeMap::new();
        let controllers = hierarchy.controllers();
        for name in NEEDED {
            if controllers
                .get(name)
                .is_none_or(|version| version.is_empty())
            {
                let why = "no cgroup hierarchy with this controller, or no right to make a group";
                missing.insert(name, why.to_owned());
            }
        }
        if landlock_abi == 0 {
            missing.insert("landlock", "the kernel has no Landlock".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            let why = "an unprivileged launcher can't map a uid that is not its own";
            missing.insert("uid_map", why.to_owned());
        }
        cgroup::sweep(&hierarchy.parents(), janitor::is_orphan);
        let janitor = janitor::start(&hierarchy.parents(), &identity)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, link.fd(), epoll::EventData::new_u64(LANE), flags)?;
        let mut launcher = Self {
            link,
            weaken,
            epoll,
            namespaces: namespaces("self")?,
            landlock_abi,
            identity,
            _janitor: Some(janitor),
            pool: if missing.is_empty() { hello.pool } else { 0 },
            uid_base: hello.uid_base,
            made: 0,
            cells: HashMap::new(),
            receipts: HashMap::new(),
            parked: Vec::new(),
            lingering: Vec::new(),
            park_failed: false,
            hierarchy,
            missing: missing.clone(),
        };
        let answer = Answer::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            pid: own,
            landlock_abi,
            cgroup: controllers,
            missing,
        };
        launcher.link.answer(&answer, None)?;
        Ok(launcher)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut packet = vec![0; PACKET_MAX];
        loop {
            let mut space = [MaybeUninit::uninit(); 32];
            let timeout = self.timeout();
            let events = match epoll::wait(&self.epoll, &mut space, Some(&timeout)) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let events: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            for &event in &events {
                if event == LANE {
                    if !self.hear(&mut packet)? {
                        return Ok(());
                    }
                } else {
                    self.cell_event(event >> 3, event & 7)?;
                }
            }
            self.link.flush()?;
            self.watch_lane()?;
            self.look();
            if events.is_empty() {
                self.tidy();
            }
        }
    }

    /// How long the loop may sleep: to the next deadline, or not at all while there is tidying up.
    fn timeout(&self) -> Timespec {
        let now = now_ns();
        let next = self.cells.values().map(|cell| cell.look_at_ns).min();
        let mut wait = next.map_or(60_000 * MS, |next| next.saturating_sub(now));
        if self.wants_cell() {
            wait = 0;
        } else if !self.lingering.is_empty() {
            wait = wait.min(5 * MS);
        }
        let tv_sec = i64::try_from(wait / 1_000_000_000).unwrap_or(60);
        let tv_nsec = (wait % 1_000_000_000) as _;
        Timespec { tv_sec, tv_nsec }
    }

    fn wants_cell(&self) -> bool {
        !self.park_failed && self.parked.len() < self.pool
    }

    /// Wakes up for room in the socket only while answers wait.
    fn watch_lane(&self) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN;
        if self.link.is_waiting() {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(LANE);
        epoll::modify(&self.epoll, self.link.fd(), data, flags).map_err(Into::into)
    }

    /// What can wait for an idle moment: one parked cell, and slots that were still busy.
    fn tidy(&mut self) {
        self.lingering.retain_mut(|slot| slot.remove().is_err());
        if self.wants_cell() {
            match self.make(0) {
                Ok(key) => self.parked.push(key),
                Err(_) => self.park_failed = true,
            }
        }
    }

    fn make(&mut self, without: u32) -> Result<u64, Trouble> {
        self.made = self.made.wrapping_add(1);
        let name = format!("{}.{}", self.identity, self.made);
        let uid = self.uid_base + self.made % UIDS;
        let abi = self.landlock_abi;
        let cell = Cell::make(self.hierarchy.as_ref(), &name, uid, abi, without)?;
        let key = u64::from(self.made);
        if let Err(errno) = self.watch(key, &cell) {
            cell.kill();
            let _ = sys::reap(-1);
            return Err(Trouble::Stage(
                "clone",
                errno.raw_os_error(),
                errno.to_string(),
            ));
        }
        self.cells.insert(key, cell);
        Ok(key)
    }

    fn watch(&self, key: u64, cell: &Cell) -> Result<(), Errno> {
        let add = |fd: rustix::fd::BorrowedFd<'_>, kind: u64, flags| {
            epoll::add(
                &self.epoll,
                fd,
                epoll::EventData::new_u64(key << 3 | kind),
                flags,
            )
        };
        add(cell.sync(), SYNC, epoll::EventFlags::IN)?;
        add(cell.pidfd.as_fd(), DEAD, epoll::EventFlags::IN)?;
        for (alarm, fd) in cell.slot.alarms() {
            // Files of a cgroup tell of a change by PRI, an eventfd by IN. A cgroup file would
            // always be readable, so each asks for its own.
            let (kind, flags) = match alarm {
                Alarm::Memory if cell.slot.memory_alarm_is_eventfd() => {
                    (MEMORY, epoll::EventFlags::IN)
                }
                Alarm::Memory => (MEMORY, epoll::EventFlags::PRI),
                Alarm::Pids => (PIDS, epoll::EventFlags::PRI),
            };
            add(fd.as_fd(), kind, flags | epoll::EventFlags::ET)?;
        }
        Ok(())
    }

    /// Takes all requests that are there. `false` when the lane is gone.
    fn hear(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
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

    fn request(&mut self, packet: &[u8], fds: Vec<OwnedFd>) -> io::Result<()> {
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

    fn find(&mut self, id: u64) -> Option<&mut Cell> {
        let lives = |cell: &&mut Cell| matches!(cell.state, State::Starting | State::Running);
        self.cells
            .values_mut()
            .filter(lives)
            .find(|cell| cell.id == id)
    }

    fn spawn(&mut self, plan: &Spawn, fds: &[OwnedFd]) -> io::Result<()> {
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
    fn give_up(&mut self, key: u64, id: u64, trouble: Trouble) -> io::Result<()> {
        if let Some(cell) = self.cells.get_mut(&key) {
            cell.state = State::Over;
            cell.look_at_ns = u64::MAX;
            let _ = epoll::delete(&self.epoll, cell.sync());
            cell.kill();
        }
        self.receipts.remove(&key);
        self.report(id, trouble)
    }

    fn report(&mut self, id: u64, trouble: Trouble) -> io::Result<()> {
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

    fn cell_event(&mut self, key: u64, kind: u64) -> io::Result<()> {
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

    fn sync(&mut self, key: u64) -> io::Result<()> {
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

    fn started(&mut self, key: u64) -> io::Result<()> {
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

    fn alarm(&mut self, key: u64, alarm: Alarm) -> io::Result<()> {
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
    fn look(&mut self) {
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
    fn bury(&mut self, key: u64) -> io::Result<()> {
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

    fn epitaph(&self, cell: &mut Cell, status: Option<i32>, usage: crate::wire::Usage) -> Answer {
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

    fn leaks(&self) -> Vec<String> {
        match self.lingering.len() {
            // One or two slots whose last process the kernel is still taking apart are no leak.
            0..=64 => Vec::new(),
            count => vec![format!("{count} cgroups could not be removed yet")],
        }
    }

    /// Kills every cell, waits for each, removes every slot.
    fn end(&mut self) -> io::Result<()> {
        for cell in self.cells.values() {
            cell.kill();
        }
        let mut slots = std::mem::take(&mut self.lingering);
        for (_, mut cell) in self.cells.drain() {
            cell.reap();
            slots.push(cell.slot);
        }
        for _ in 0..200 {
            slots.retain_mut(|slot| slot.remove().is_err());
            if slots.is_empty() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Err(io::Error::other(format!(
            "{} cgroups could not be removed",
            slots.len()
        )))
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
