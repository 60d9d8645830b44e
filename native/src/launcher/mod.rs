//! The event loop: the lane on one side, cells on the other.
//!
//! Single-threaded, so that a clone copies a process that holds no lock. Owns the pool of parked
//! cells, the deadlines and the clean-up. What it must never do: block on the lane, or go on when
//! the lane is gone.

mod requests;
mod watch;

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
use crate::wire::{Answer, Head, Hello, PACKET_MAX, PROTOCOL, read};
use crate::{janitor, sys};

/// A cell whose program does not run by then is given up.
const START_NS: u64 = 10_000_000_000;
/// CPU time is looked at no more often than this.
const CPU_LOOK_NS: u64 = 2_000_000;
const MS: u64 = 1_000_000;
/// The loop's longest sleep.
const LONGEST_NS: u64 = 60_000 * MS;
/// Quiet for this long, the launcher parks a cell: not in the way of a start or of an exit.
const QUIET_NS: u64 = 2 * MS;
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
    // Ctrl-C goes to the whole foreground group; when to end is the lane's word, by closing the socket.
    sys::ignore_terminal_signals().map_err(io::Error::from)?;
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
        let mut wait = next.map_or(LONGEST_NS, |next| next.saturating_sub(now).min(LONGEST_NS));
        if self.wants_cell() {
            wait = wait.min(QUIET_NS);
        } else if !self.lingering.is_empty() {
            wait = wait.min(5 * MS);
        }
        let tv_sec = i64::try_from(wait / 1_000_000_000).unwrap_or(60);
        let tv_nsec = (wait % 1_000_000_000) as _;
        Timespec { tv_sec, tv_nsec }
    }

    fn wants_cell(&self) -> bool {
        let starting = |cell: &Cell| cell.state == State::Starting;
        !self.park_failed && self.parked.len() < self.pool && !self.cells.values().any(starting)
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
        let mut cell = Cell::make(self.hierarchy.as_ref(), &name, uid, abi, without)?;
        let key = u64::from(self.made);
        if let Err(errno) = self.watch(key, &cell) {
            cell.kill();
            cell.reap();
            self.lingering.push(cell.slot);
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
