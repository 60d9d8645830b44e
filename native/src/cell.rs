//! One cell, seen from the launcher: made, given a plan, watched, ended.
//!
//! Owns the cell's process, page, socket and slot. Knows nothing of the lane's socket or of other
//! cells. Called by `launcher`.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};
use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::{Hierarchy, ReadBack, Slot};
use crate::plan::{self, Tree};
use crate::planned::{STAGE_NAMES, Stage, control};
use crate::receipt::Receipt;
use crate::stages::{CELL_ID, MAPPED, PLANNED, PROCEED, READY, become_cell, now_ns};
use crate::sys::{self, SharedPage};
use crate::wire::{Breach, Limits, Spawn, Usage};

/// Why a plan did not become a run.
pub enum Trouble {
    /// The plan's fault.
    Plan(String),
    /// The machine's: stage, errno, words.
    Stage(&'static str, i32, String),
}

fn trouble(stage: &'static str, error: &io::Error) -> Trouble {
    Trouble::Stage(stage, error.raw_os_error().unwrap_or(0), error.to_string())
}

/// What a cell has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Made, or being made, without a plan.
    Parked,
    /// Has a plan; the program does not run yet.
    Starting,
    /// The program runs.
    Running,
    /// Over before it ran; only to be reaped.
    Over,
}

/// See the module.
pub struct Cell {
    /// The lane's name for it, once it has a plan.
    pub id: u64,
    /// See [`State`].
    pub state: State,
    /// Whether it was parked before its plan came.
    pub warm: bool,
    /// Limit that ended it.
    pub breach: Option<Breach>,
    /// The lane's reason for its end.
    pub killed: Option<String>,
    /// Its limits.
    pub limits: Option<Limits>,
    /// When to look at it next, for wall and CPU time.
    pub look_at_ns: u64,
    /// When the program started.
    pub started_ns: u64,
    /// The slot.
    pub slot: Box<dyn Slot>,
    /// The cell's init.
    pub pidfd: OwnedFd,
    init: i32,
    tool: Option<(i32, OwnedFd)>,
    /// The cell's mount namespace. The kernel takes it apart with the last hold on it; without this
    /// one that were the init's exit, and `exit` would wait for it.
    _mounts: OwnedFd,
    sync: OwnedFd,
    page: SharedPage,
    host_id: u32,
    read_back: ReadBack,
    own_stages_ns: [u64; STAGE_NAMES.len()],
}

impl Cell {
    /// Clones a cell into a new slot. It goes through its parked stages on its own.
    pub fn make(
        hierarchy: &dyn Hierarchy,
        name: &str,
        host_id: u32,
        landlock_abi: u32,
        without: u32,
    ) -> Result<Self, Trouble> {
        let began = now_ns();
        let mut slot = hierarchy
            .slot(name)
            .map_err(|error| trouble("cgroup", &error))?;
        match Self::clone_into(slot.as_ref(), host_id, landlock_abi, without) {
            Ok((page, sync, init, pidfd, mounts)) => {
                let mut own_stages_ns = [0; STAGE_NAMES.len()];
                own_stages_ns[Stage::Clone as usize - 1] = now_ns() - began;
                Ok(Self {
                    id: 0,
                    state: State::Parked,
                    warm: false,
                    breach: None,
                    killed: None,
                    limits: None,
                    look_at_ns: u64::MAX,
                    started_ns: 0,
                    slot,
                    pidfd,
                    init,
                    tool: None,
                    _mounts: mounts,
                    sync,
                    page,
                    host_id,
                    read_back: ReadBack::default(),
                    own_stages_ns,
                })
            }
            Err(error) => {
                let _ = slot.remove();
                Err(trouble("clone", &error))
            }
        }
    }

    fn clone_into(
        slot: &dyn Slot,
        host_id: u32,
        landlock_abi: u32,
        without: u32,
    ) -> io::Result<(SharedPage, OwnedFd, i32, OwnedFd, OwnedFd)> {
        let mut page = SharedPage::new()?;
        page.get_mut().without = without;
        page.get_mut().landlock_abi = landlock_abi;
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // The kernel then says who sent a message, as a pid of our own namespace.
        sockopt::set_socket_passcred(&ours, true)?;
        let entries: Vec<RawFd> = slot.entries().iter().map(AsRawFd::as_raw_fd).collect();
        let cloned = sys::clone_process(namespaces(without))?;
        let Some((init, pidfd)) = cloned else {
            become_cell(page.get(), theirs.as_raw_fd(), &entries);
        };
        drop(theirs);
        match Self::admit(&page, &ours, init, host_id) {
            Ok(mounts) => Ok((page, ours, init, pidfd, mounts)),
            Err(error) => {
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                let _ = sys::reap(init);
                Err(error)
            }
        }
    }

    /// What a new cell's process waits for.
    fn admit(page: &SharedPage, sync: &OwnedFd, init: i32, host_id: u32) -> io::Result<OwnedFd> {
        page.hide_from_later_children()?;
        let map = format!("{CELL_ID} {host_id} 1");
        std::fs::write(format!("/proc/{init}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{init}/gid_map"), &map)?;
        let mounts = std::fs::File::open(format!("/proc/{init}/ns/mnt"))?;
        rustix::io::write(sync, &[MAPPED])?;
        Ok(mounts.into())
    }

    /// The socket to the cell's process.
    pub fn sync(&self) -> BorrowedFd<'_> {
        self.sync.as_fd()
    }

    /// Which stage failed, if one did.
    pub fn failure(&self) -> Option<(&'static str, i32)> {
        self.page.get().report.failure()
    }

    /// Gives the cell its plan and descriptors. It answers on `sync`.
    pub fn plan(&mut self, plan: &Spawn, fds: &[OwnedFd]) -> Result<(), Trouble> {
        self.warm = self.stage_ns(Stage::NoNewPrivs) > 0;
        let trees = plan::compile(plan, self.page.get_mut()).map_err(Trouble::Plan)?;
        let began = now_ns();
        let limited = self.slot.limit(&plan.limits);
        self.read_back = limited.map_err(|error| trouble("limits", &error))?;
        self.limits = Some(plan.limits.clone());
        let limits_set = now_ns();
        let trees = self.open_trees(&trees)?;
        let opened = now_ns();
        self.page.get_mut().handed_ns = now_ns();
        let all: Vec<BorrowedFd<'_>> = fds.iter().chain(&trees).map(AsFd::as_fd).collect();
        self.hand_over(&all)
            .map_err(|error| trouble("hand_over", &error.into()))?;
        self.own_stages_ns[Stage::Limits as usize - 1] = limits_set - began;
        self.own_stages_ns[Stage::Trees as usize - 1] = opened - limits_set;
        self.id = plan.id;
        self.state = State::Starting;
        Ok(())
    }

    /// A detached mount of each source: the cell's own uid could not walk to it.
    fn open_trees(&self, trees: &[Tree]) -> Result<Vec<OwnedFd>, Trouble> {
        let read_only = self.page.get().enforces(const { control("read_only") });
        let mut opened = Vec::with_capacity(trees.len());
        for tree in trees {
            let attributes = 0b110 | u64::from(read_only) | if tree.exec { 0 } else { 0b1000 };
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let result = open_tree(CWD, &tree.source, flags).and_then(|fd| {
                sys::mount_attributes(fd.as_raw_fd(), attributes, false)?;
                Ok(fd)
            });
            let fd = result.map_err(|errno| {
                Trouble::Stage(
                    "trees",
                    errno.raw_os_error(),
                    format!("{}: {errno}", tree.source),
                )
            })?;
            opened.push(fd);
        }
        Ok(opened)
    }

    fn hand_over(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        let message = [IoSlice::new(&[PLANNED])];
        sendmsg(&self.sync, &message, &mut control, SendFlags::NOSIGNAL).map(drop)
    }

    /// Takes what came on `sync`. `true` when the program has started.
    pub fn advance(
        &mut self,
        own: &BTreeMap<&'static str, u64>,
    ) -> Result<Option<Receipt>, Trouble> {
        let (count, byte, sender) = match self.receive() {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            // The process died before it read what was sent to it.
            Err(Errno::CONNRESET) => (0, 0, 0),
            Err(errno) => return Err(trouble("exec", &errno.into())),
        };
        if count == 0 {
            return match self.failure() {
                Some((stage, errno)) => {
                    let words = io::Error::from_raw_os_error(errno).to_string();
                    Err(Trouble::Stage(stage, errno, words))
                }
                None if self.tool.is_none() => Err(Trouble::Stage(
                    "exec",
                    0,
                    "the cell's process was killed".into(),
                )),
                None => {
                    self.state = State::Running;
                    Ok(None)
                }
            };
        }
        if byte != READY || self.tool.is_some() {
            return Err(Trouble::Stage(
                "exec",
                0,
                "the cell's process said nonsense".into(),
            ));
        }
        self.inspect(sender, own).map(Some)
    }

    fn receive(&self) -> Result<(usize, u8, i32), Errno> {
        let mut byte = [0_u8; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [io::IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::DONTWAIT;
        let message = recvmsg(&self.sync, &mut slices, &mut control, flags)?;
        let mut sender = 0;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmCredentials(who) = part {
                sender = who.pid.as_raw_nonzero().get();
            }
        }
        Ok((message.bytes, byte[0], sender))
    }

    fn inspect(&mut self, pid: i32, own: &BTreeMap<&'static str, u64>) -> Result<Receipt, Trouble> {
        let began = now_ns();
        let failed = |error: io::Error| trouble("receipt", &error);
        let known = rustix::process::Pid::from_raw(pid)
            .ok_or_else(|| Trouble::Stage("receipt", 0, "no sender".into()))?;
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd =
            rustix::process::pidfd_open(known, flags).map_err(|errno| failed(errno.into()))?;
        self.tool = Some((pid, pidfd));
        self.read_back.members = self.slot.members();
        let receipt =
            Receipt::read(pid, self.page.get(), self.read_back.clone()).map_err(failed)?;
        if let Some(what) = receipt.shortfall(self.page.get(), own, self.host_id.into()) {
            return Err(Trouble::Stage("receipt", 0, what));
        }
        self.own_stages_ns[Stage::Receipt as usize - 1] = now_ns() - began;
        self.started_ns = now_ns();
        rustix::io::write(&self.sync, &[PROCEED]).map_err(|errno| failed(errno.into()))?;
        Ok(receipt)
    }

    /// The tool's pid, 0 before there is one.
    pub fn tool_pid(&self) -> i32 {
        self.tool.as_ref().map_or(0, |(pid, _)| *pid)
    }

    fn stage_ns(&self, stage: Stage) -> u64 {
        let slot = self.page.get().report.stage_ns.get(stage as usize - 1);
        slot.map_or(0, |slot| slot.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// How long each stage took.
    pub fn stages_us(&self) -> BTreeMap<&'static str, f64> {
        let theirs = self.page.get().report.stage_ns.iter();
        let times = theirs.map(|slot| slot.load(std::sync::atomic::Ordering::Relaxed));
        STAGE_NAMES
            .into_iter()
            .zip(times.zip(self.own_stages_ns))
            .filter(|(_, (theirs, ours))| theirs + ours > 0)
            .map(|(name, (theirs, ours))| (name, (theirs + ours) as f64 / 1000.0))
            .collect()
    }

    /// Ends the whole tree: the init of a pid namespace takes it along.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// SIGTERM to the tool's first process.
    pub fn terminate(&self) {
        if let Some((_, pidfd)) = &self.tool {
            let _ = pidfd_send_signal(pidfd, Signal::TERM);
        }
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        let mut usage = self.slot.usage();
        // The init, and the launcher's own process before the program, are no processes of the tool.
        usage.pids_peak = usage.pids_peak.saturating_sub(1);
        if self.started_ns > 0 {
            usage.wall_us = now_ns().saturating_sub(self.started_ns) / 1000;
        }
        usage
    }

    /// Reaps the init, which the caller knows to be dead. The tool's wait status, and the usage.
    pub fn reap(&mut self) -> (Option<i32>, Usage) {
        let reaped = sys::reap(self.init).unwrap_or_default();
        let status = self
            .page
            .get()
            .report
            .status
            .load(std::sync::atomic::Ordering::Acquire);
        let mut usage = self.usage();
        (usage.user_us, usage.system_us) = (reaped.user_us, reaped.system_us);
        ((status != 0).then(|| status.wrapping_sub(1)), usage)
    }
}

fn namespaces(without: u32) -> u64 {
    let all = [
        (libc::CLONE_NEWUSER, 0),
        (libc::CLONE_NEWNS, 0),
        (libc::CLONE_NEWPID, const { control("pid") }),
        (libc::CLONE_NEWUTS, const { control("uts") }),
        (libc::CLONE_NEWIPC, const { control("ipc") }),
        (libc::CLONE_NEWNET, const { control("net") }),
    ];
    let kept = all.iter().filter(|(_, bit)| without & bit == 0);
    kept.fold(0, |flags, (flag, _)| flags | *flag as u64)
}
