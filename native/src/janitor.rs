//! The process that cleans up when the launcher is killed in the middle.
//!
//! It waits for the end of a pipe whose other end only the launcher holds; then it kills and
//! removes that launcher's slots. Cells die by themselves (parent-death signal), cgroups do not.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup;
use crate::sys;

/// `PID.START`: who a launcher is, also after its pid was used again.
pub fn identity(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields after the command's name, which may hold anything; the start time is the 22nd of all.
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    Some(format!("{pid}.{start}"))
}

/// Whether a slot of this name belongs to a launcher that is gone.
pub fn is_orphan(slot: &str) -> bool {
    let mut parts = slot.splitn(3, '.');
    let (Some(pid), Some(start), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(number) = pid.parse() else {
        return false;
    };
    identity(number).is_none_or(|found| found != format!("{pid}.{start}"))
}

/// Starts it. It watches until the returned descriptor is closed.
pub fn start(parents: &[PathBuf], identity: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    if sys::clone_process(0)?.is_some() {
        return Ok(theirs);
    }
    let _ = sys::reset_signals();
    let _ = rustix::process::setsid();
    if sys::close_all_but(&[ours.as_raw_fd()]).is_err() {
        sys::exit(1);
    }
    let mut byte = [0_u8; 1];
    while rustix::io::read(&ours, &mut byte) == Err(rustix::io::Errno::INTR) {}
    let prefix = format!("{identity}.");
    let left = cgroup::sweep(parents, |name| name.starts_with(&prefix));
    sys::exit(i32::from(!left.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_an_orphan_when_its_launcher_is_gone() {
        let own = identity(std::process::id()).expect("a process");
        assert!(!is_orphan(&format!("{own}.1")));
        // The same pid, started at another time.
        let (pid, start) = own.split_once('.').expect("two parts");
        assert!(is_orphan(&format!("{pid}.{start}0.1")));
        assert!(is_orphan("4194305.1.1"));
    }

    #[test]
    fn what_is_no_slots_name_is_left_alone() {
        for name in ["", "user.slice", "1", "1.2", "a.b.c", "-1.2.3"] {
            assert!(!is_orphan(name), "{name}");
        }
    }
}
