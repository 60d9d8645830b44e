//! Cgroups of either version behind one interface with one meaning.
//!
//! Owns the slots: a cgroup for each cell, made before it and removed after it. Limits are written
//! and read back. Never moves a process on its own: a cell's process enters through `entries`.
//! Called by `cell` and `launcher`.

mod v1;
mod v2;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::wire::{Limits, Usage};

/// Length of the period over which bandwidth is measured.
const CPU_PERIOD_US: u64 = 100_000;

/// What the cgroup files say.
#[derive(Clone, Default, Serialize)]
pub struct ReadBack {
    /// 1 or 2.
    pub version: u32,
    /// Of the slot, below the hierarchy.
    pub path: String,
    /// Limit in force.
    pub memory_bytes: u64,
    /// Limit in force, the launcher's init included.
    pub pids: u64,
    /// Quota in force.
    pub cpu_quota_us: u64,
    /// Its period.
    pub cpu_period_us: u64,
    /// Processes in the slot (of the memory controller).
    pub members: u64,
}

/// What a slot tells without being asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// The memory limit was hit and a process killed.
    Memory,
    /// A fork was refused.
    Pids,
}

/// The cgroup of one cell.
pub trait Slot {
    /// `cgroup.procs` of each hierarchy, open for writing.
    fn entries(&self) -> &[OwnedFd];
    /// Writes the limits, reads them back; an error where less is in force than was asked.
    fn limit(&mut self, limits: &Limits) -> io::Result<ReadBack>;
    /// Descriptors to watch for `EPOLLPRI` or `EPOLLIN`.
    fn alarms(&self) -> Vec<(Alarm, &OwnedFd)>;
    /// Whether the memory alarm is an eventfd (readable) rather than a file that changes.
    fn memory_alarm_is_eventfd(&self) -> bool;
    /// Whether an alarm is a real one, and the count behind it.
    fn raised(&self, alarm: Alarm) -> u64;
    /// CPU time of all that ever ran in the slot.
    fn cpu_us(&self) -> u64;
    /// Everything that the files say, so far (`pids_peak` counts the init).
    fn usage(&self) -> Usage;
    /// Processes in the slot.
    fn members(&self) -> u64;
    /// Removes the cgroups. Fails while a process is in them; may be called again.
    fn remove(&mut self) -> io::Result<()>;
}

/// Where slots are made.
pub trait Hierarchy {
    /// Controller to `v1`, `v2` or nothing.
    fn controllers(&self) -> BTreeMap<&'static str, &'static str>;
    /// A slot of this name.
    fn slot(&self, name: &str) -> io::Result<Box<dyn Slot>>;
    /// Folders in which slots lie, one per hierarchy.
    fn parents(&self) -> Vec<PathBuf>;
}

/// Controllers that a launcher can't do without.
pub const NEEDED: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// Finds the machine's hierarchy: v2 where it has the controllers, v1 else.
pub fn find(parent: &str) -> io::Result<Box<dyn Hierarchy>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    if let Some(tree) = v2::Tree::find(&mounts, parent) {
        return Ok(Box::new(tree));
    }
    Ok(Box::new(v1::Trees::find(&mounts, parent)?))
}

/// Removes slots whose launcher is gone, and what is in them. The names of those that stay.
pub fn sweep(parents: &[PathBuf], dead: impl Fn(&str) -> bool) -> Vec<String> {
    let mut left = Vec::new();
    for parent in parents {
        let Ok(entries) = std::fs::read_dir(parent) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && dead(&name) && !clear(&entry.path()) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    left
}

/// Kills what is in a slot and removes it.
fn clear(slot: &Path) -> bool {
    for _ in 0..100 {
        let members = std::fs::read_to_string(slot.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| line.parse().ok()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        match std::fs::remove_dir(slot) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    false
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn read(file: &File) -> io::Result<String> {
    let mut buffer = [0_u8; 4096];
    let count = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

fn number(file: &File) -> io::Result<u64> {
    let text = read(file)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("a cgroup file holds {text:?}")))
}

/// The value after `key` in a file of `key value` lines.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

fn set(file: &File, value: &str) -> io::Result<()> {
    file.write_at(value.as_bytes(), 0).map(drop)
}

fn weaker(what: &str, asked: u64, found: u64) -> io::Error {
    io::Error::other(format!("{what}: asked for {asked}, the kernel has {found}"))
}

fn check_memory(asked: u64, found: u64) -> io::Result<()> {
    // The kernel rounds down to a page.
    if found > asked || asked - found >= 65_536 {
        return Err(weaker("memory", asked, found));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let text = "oom 1\noom_kill 2\nmax 3\n";
        assert_eq!(keyed(text, "oom_kill"), Some(2));
        assert_eq!(keyed(text, "oom"), Some(1));
        assert_eq!(keyed(text, "oom_"), None);
    }

    #[test]
    fn memory_may_be_rounded_down_by_a_page_and_never_up() {
        assert!(check_memory(1 << 20, 1 << 20).is_ok());
        assert!(check_memory((1 << 20) + 5, 1 << 20).is_ok());
        assert!(check_memory(1 << 20, (1 << 20) + 4096).is_err());
        assert!(check_memory(1 << 30, 1 << 20).is_err());
    }
}
