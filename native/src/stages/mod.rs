//! The start of a cell, as the ordered list of stages that its own process takes.
//!
//! Runs between clone and exec: system calls over the planned page, no allocation, no lock, no
//! panic. A stage that fails writes (stage, errno) into the report and the process ends; nothing
//! of the tool runs. Called by `cell` in the new process only.

mod park;
mod run;

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use crate::planned::{FDS_MAX, Page, Stage};
use crate::sys::{self, Outcome};

/// The uid and gid of a cell inside its user namespace.
pub const CELL_ID: u32 = 1000;
/// Launcher to cell: the id maps are written.
pub const MAPPED: u8 = b'M';
/// Launcher to cell, with descriptors: the plan is in the page.
pub const PLANNED: u8 = b'G';
/// Cell to launcher: all is in force but the program.
pub const READY: u8 = b'R';
/// Launcher to cell: the receipt is good.
pub const PROCEED: u8 = b'X';

/// What the stages hand to each other.
struct Cell<'a> {
    page: &'a Page,
    /// The socket to the launcher.
    sync: RawFd,
    /// Open `cgroup.procs` files of the slot.
    entries: &'a [RawFd],
    root: RawFd,
    received: [RawFd; FDS_MAX * 2],
    program: RawFd,
}

type Step = (Stage, fn(&mut Cell<'_>) -> Outcome<()>);

/// Made ahead, before any plan is known.
const PARKED: [Step; 12] = [
    (Stage::Close, park::close),
    (Stage::Cgroup, park::cgroup),
    (Stage::Maps, park::maps),
    (Stage::Ids, park::ids),
    (Stage::Userns, park::userns),
    (Stage::Root, park::root),
    (Stage::Proc, park::proc),
    (Stage::Dev, park::dev),
    (Stage::Pivot, park::pivot),
    (Stage::Bounding, park::bounding),
    (Stage::Securebits, park::securebits),
    (Stage::NoNewPrivs, park::no_new_privs),
];

/// Per plan, by what becomes the cell's init.
const PLANNED_BY_INIT: [Step; 8] = [
    (Stage::HandOver, run::hand_over),
    (Stage::Hostname, run::hostname),
    (Stage::Mounts, run::mounts),
    (Stage::SealRoot, run::seal_root),
    (Stage::Fds, run::fds),
    (Stage::Landlock, run::landlock),
    (Stage::Capabilities, run::capabilities),
    (Stage::Init, run::init),
];

/// Per plan, by the tool's own process. The filter is the last: it need not allow what came before.
const PLANNED_BY_TOOL: [Step; 3] = [
    (Stage::Rlimits, run::rlimits),
    (Stage::Seccomp, run::seccomp),
    (Stage::Exec, run::execute),
];

/// Becomes the cell. `entries` are the slot's `cgroup.procs`, at most seven.
pub fn become_cell(page: &Page, sync: RawFd, entries: &[RawFd]) -> ! {
    let mut cell = Cell {
        page,
        sync,
        entries,
        root: -1,
        received: [-1; FDS_MAX * 2],
        program: -1,
    };
    for list in [&PARKED[..], &PLANNED_BY_INIT[..], &PLANNED_BY_TOOL[..]] {
        take(&mut cell, list);
    }
    sys::exit(126)
}

fn take(cell: &mut Cell<'_>, list: &[Step]) {
    let mut before = now_ns();
    for (stage, step) in list {
        let result = step(cell);
        let after = now_ns();
        if *stage == Stage::HandOver {
            before = before.max(cell.page.handed_ns);
        }
        let index = *stage as usize - 1;
        if let Some(slot) = cell.page.report.stage_ns.get(index) {
            slot.store(after.saturating_sub(before), Ordering::Relaxed);
        }
        before = after;
        if let Err(errno) = result {
            let report = &cell.page.report;
            report.errno.store(errno.raw_os_error(), Ordering::Relaxed);
            report.failed_stage.store(*stage as i32, Ordering::Release);
            sys::exit(126);
        }
    }
}

/// The monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
